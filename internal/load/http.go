package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/regiond/regiond/quota"
)

// Faults, besides "status 400" and its like. They are few, so that they can be counted.
const (
	FaultTimeout = "timeout"            // no answer within the timeout
	FaultRefused = "connection refused" // nothing listens there
	FaultBroken  = "connection broken"  // it ended before the answer did
	FaultNetwork = "network"            // any other fault of the connection
	FaultForeign = "not an answer of regiond"
)

// HTTP is an Asker that calls the data listeners of regionds. It may be used from many
// goroutines at once.
type HTTP struct {
	client *http.Client
	token  string
}

// NewHTTP returns an Asker that keeps up to conns connections to each target. Making
// one may take as long as a request may, timeout. It sends token as a bearer token
// unless it is empty; trust may be nil, for the system's authorities. Close it.
func NewHTTP(conns int, timeout time.Duration, token string, trust *tls.Config) *HTTP {
	return &HTTP{token: token, client: &http.Client{
		// No proxy, also where the environment names one: what is measured is regiond.
		Transport: &http.Transport{
			MaxIdleConnsPerHost: conns, DisableCompression: true, TLSClientConfig: trust,
			// A connection that is being made outlives the request it was for.
			DialContext: (&net.Dialer{Timeout: timeout}).DialContext, TLSHandshakeTimeout: timeout,
		},
		// An answer that leads elsewhere is an answer, and not regiond's.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close ends the connections. Nothing may be under way.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

// longestAnswer is far above any answer to a check.
const longestAnswer = 1 << 20

// response is what matters here of an answer or of a problem document.
type response struct {
	Answer
	Title  string             `json:"title"`
	Detail string             `json:"detail"`
	Errors []quota.FieldError `json:"errors"`
}

// problem is the text of a problem document, in one line.
func (s *response) problem() string {
	text := s.Title
	if s.Detail != "" {
		text += ": " + s.Detail
	}
	for _, e := range s.Errors {
		text += "; " + e.Pointer + " " + e.Detail
	}
	return text
}

// Ask implements Asker.
func (h *HTTP) Ask(ctx context.Context, target string, r *Request) Answer {
	status, body, err := h.do(ctx, http.MethodPost, target+"/v1/check", r.body())
	if err != nil {
		return Answer{Fault: fault(err), Detail: err.Error()}
	}
	var s response
	err = json.Unmarshal(body, &s)
	switch status {
	case http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		switch {
		case err == nil && s.Basis != "":
			return s.Answer
		case err != nil || s.Title == "" || status != http.StatusServiceUnavailable:
			return Answer{Fault: FaultForeign, Detail: fmt.Sprintf("status %d, %.100q", status, body)}
		}
		// A problem document with 503 is a regiond that could not decide.
	}
	return Answer{Fault: "status " + strconv.Itoa(status), Detail: s.problem()}
}

func (r *Request) body() []byte {
	b := append(make([]byte, 0, 128), `{"tenant":`...)
	b = strconv.AppendQuote(b, r.Tenant)
	if r.Policy != "" {
		b = strconv.AppendQuote(append(b, `,"policy":`...), r.Policy)
	}
	return append(strconv.AppendInt(append(b, `,"cost":`...), r.Cost, 10), '}')
}

// Probe asks a target for what a check like r would get, which spends nothing. An
// error is why a run against it would measure nothing.
func (h *HTTP) Probe(ctx context.Context, target string, r *Request) error {
	query := url.Values{"cost": {strconv.FormatInt(r.Cost, 10)}}
	if r.Policy != "" {
		query.Set("policy", r.Policy)
	}
	status, body, err := h.do(ctx, http.MethodGet, target+"/v1/usage/"+url.PathEscape(r.Tenant)+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	var s response
	err = json.Unmarshal(body, &s)
	switch {
	case err == nil && status == http.StatusOK && s.Basis != "":
		return nil
	case err == nil && s.Title != "":
		e := &RefusedError{Status: status, Problem: s.Title + ": " + s.Detail}
		if len(s.Errors) > 0 {
			e.FieldError = s.Errors[0]
		}
		return e
	}
	return fmt.Errorf("status %d, %.100q: that is not a regiond", status, body)
}

// RefusedError is a regiond that answers and will not decide such a check.
type RefusedError struct {
	Status           int
	Problem          string // title and detail of its problem document
	quota.FieldError        // the first that it names; without one the Pointer is ""
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Pointer == "" {
		return e.Problem
	}
	return e.Pointer + " " + e.Detail
}

func (h *HTTP) do(ctx context.Context, method, address string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	res, err := h.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) { // without method and address, which the caller knows
			err = u.Err
		}
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, longestAnswer))
	return res.StatusCode, answer, err
}

// fault is the word for an error of a call.
func fault(err error) string {
	var timed net.Error
	switch {
	case errors.As(err, &timed) && timed.Timeout(): // context.DeadlineExceeded is one, too
		return FaultTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return FaultRefused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return FaultBroken
	}
	return FaultNetwork
}
