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

// DefaultTimeout bounds a check. regiond answers within 50 ms, also while its
// Redis is down; the rest is for the network.
const DefaultTimeout = 100 * time.Millisecond

// Fail is what happens to a request while regiond is unavailable.
type Fail uint8

const (
	// Open lets requests through, without limits. The zero value.
	Open Fail = iota
	// Closed refuses them, with 503.
	Closed
)

// Options configure a Client.
type Options struct {
	// URL is regiond's data listener, "http://127.0.0.1:8080". Required.
	URL string
	// Token is sent as "Authorization: Bearer …" where topology.yaml sets access.
	Token string
	// Timeout bounds a check, from dialling to the last byte of the answer; 0
	// means DefaultTimeout.
	Timeout time.Duration
	// OnAway is the decision while regiond is unavailable. One that is busy is not: it
	// answers by the policy's on_overload.
	OnAway Fail
	// Identify returns what a request is charged to. Handler needs it. An error
	// refuses the request with 403; its text is for Observe, not for the customer.
	// Read only what is authenticated, not what the client claims.
	Identify func(*http.Request) (Check, error)
	// Propagate, if set, adds the trace context of a check's context to the header of the
	// call, unless the Check has one. With OpenTelemetry:
	//
	//	func(ctx context.Context, h http.Header) {
	//		otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(h))
	//	}
	Propagate func(context.Context, http.Header)
	// TrustTraceparent makes Handler pass on the trace context that its request came with,
	// where there is no Propagate. Only behind a gateway that sets it: customers could
	// have each of their checks traced.
	TrustTraceparent bool
	// Observe, if set, is called after each check: the place for a log line or a
	// counter. Alert on Decision.Away. It is called from many goroutines and delays
	// the request.
	Observe func(context.Context, Check, Decision, error)
	// HTTPClient replaces the built-in client, for TLS or a traced transport. It
	// must not retry: a check that is sent twice may be charged twice.
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

// client returns the HTTP client of checks. It uses no proxy, follows no redirect,
// and closes idle connections before regiond does, after 60 s.
func (o *Options) client() *http.Client {
	if o.HTTPClient != nil {
		return o.HTTPClient
	}
	return &http.Client{
		Transport: &http.Transport{
			// Both, since a connection being made outlives the check that needed it.
			DialContext:         (&net.Dialer{Timeout: o.Timeout}).DialContext,
			TLSHandshakeTimeout: o.Timeout,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     30 * time.Second,
			ForceAttemptHTTP2:   true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
