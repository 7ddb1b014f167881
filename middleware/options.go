package middleware

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DefaultTimeout is how long a question may take, all in all. regiond answers
// within 50 ms, also when its Redis is away; the rest is for the way.
const DefaultTimeout = 100 * time.Millisecond

// Fail is what becomes of a request while regiond is away.
type Fail uint8

const (
	// Open lets requests through, without limits. The zero value.
	Open Fail = iota
	// Closed refuses them, with 503.
	Closed
)

// Options say whom to ask, about what, and what to do without an answer.
type Options struct {
	// URL is regiond's data listener, "http://127.0.0.1:8080". Required.
	URL string
	// Token is sent as "Authorization: Bearer …" where topology.yaml sets access.
	Token string
	// Timeout bounds a question, from dialling to the last byte of the answer. 0
	// means DefaultTimeout.
	Timeout time.Duration
	// OnAway is the choice for when regiond cannot be asked.
	OnAway Fail
	// Identify says what a request is to be charged to. Handler needs it. An error
	// refuses the request with 403; its text is for Observe, not for the customer.
	// Whatever it reads must be proven, not merely claimed by the client.
	Identify func(*http.Request) (Check, error)
	// Observe, if set, is told of each question after it was answered: the place
	// for a log line or a counter. Decision.Away is what to alarm on. It is called
	// from many goroutines and delays the request.
	Observe func(context.Context, Check, Decision, error)
	// HTTPClient replaces the built-in client, for TLS or a transport that is
	// traced. It must not retry: a question that is asked twice may be charged twice.
	HTTPClient *http.Client
}

func (o *Options) validate() error {
	u, err := url.Parse(o.URL)
	if err != nil {
		return fmt.Errorf("middleware: Options.URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" {
		return fmt.Errorf("middleware: Options.URL is %q; it needs scheme and host alone, as http://127.0.0.1:8080", o.URL)
	}
	if o.Timeout < 0 {
		return fmt.Errorf("middleware: Options.Timeout is %v; it must not be negative", o.Timeout)
	}
	if o.OnAway > Closed {
		return errors.New("middleware: Options.OnAway is neither Open nor Closed")
	}
	return nil
}

// client returns the HTTP client of questions. It asks no proxy, follows no
// redirect, and keeps its connections for less than regiond's 60 s, so that it is
// the one to hang up.
func (o *Options) client() *http.Client {
	if o.HTTPClient != nil {
		return o.HTTPClient
	}
	return &http.Client{
		Transport: &http.Transport{
			// Both, since a connection that is being made outlives the question it was for.
			DialContext:         (&net.Dialer{Timeout: o.Timeout}).DialContext,
			TLSHandshakeTimeout: o.Timeout,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     30 * time.Second,
			ForceAttemptHTTP2:   true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
