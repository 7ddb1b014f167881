package middleware

import (
	"cmp"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Defaults of Transport.
const (
	// DefaultAttempts: more than three are seldom worth the traffic.
	DefaultAttempts = 3
	// DefaultMaxWait is longer than a per-second limit ever needs.
	DefaultMaxWait = 30 * time.Second
)

// Transport is an http.RoundTripper for clients of a limited API. It waits for the
// Retry-After of a 429, adds jitter so that clients do not return together, and
// retries. The zero value is ready to use:
//
//	http.Client{Transport: &middleware.Transport{}}
//
// A 429 was not carried out, so any method is retried. A 503 may have been: only
// one with Retry-After, and only idempotent methods. A body has to be replayable
// (http.Request.GetBody, which http.NewRequest sets for bytes and strings). The
// answer of the last attempt, and one that cannot be retried, is returned as it
// is. It is safe for concurrent use.
type Transport struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Attempts bounds how often a request is sent; 0 means DefaultAttempts.
	Attempts int
	// MaxWait is the longest Retry-After to wait for, without jitter; an answer
	// that demands more is returned at once. 0 means DefaultMaxWait.
	MaxWait time.Duration
}

// RoundTrip implements http.RoundTripper. Waits end with the request's context,
// and one that would outlast its deadline is not begun.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	attempts := cmp.Or(t.Attempts, DefaultAttempts)
	for attempt := 1; ; attempt++ {
		resp, err := base.RoundTrip(req)
		if err != nil || attempt >= attempts || !retryable(req, resp) {
			return resp, err
		}
		least := retryAfter(resp, attempt)
		wait := jittered(least, rand.Float64())
		if !t.worth(req, least, wait) {
			return resp, nil
		}
		// The connection is reused only when the body was read.
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		resp.Body.Close()
		select {
		case <-time.After(wait):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		req = req.Clone(req.Context())
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// worth reports whether least is short enough, and whether the wait with jitter
// ends before the deadline. MaxWait does not count jitter.
func (t *Transport) worth(req *http.Request, least, wait time.Duration) bool {
	if least > cmp.Or(t.MaxWait, DefaultMaxWait) {
		return false
	}
	deadline, ok := req.Context().Deadline()
	return !ok || time.Until(deadline) > wait
}

func retryable(req *http.Request, resp *http.Response) bool {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		return true
	}
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// retryAfter is the seconds or the date of Retry-After. Without one it is a second,
// doubled with each attempt.
func retryAfter(resp *http.Response, attempt int) time.Duration {
	field := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(field, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(field); err == nil {
		return max(0, time.Until(at))
	}
	return time.Second << min(attempt-1, 10)
}

// jittered adds up to a tenth of the wait and a tenth of a second; random is in
// [0,1). It never shortens a wait: an earlier attempt would be denied.
func jittered(wait time.Duration, random float64) time.Duration {
	return wait + time.Duration(random*float64(wait/10+100*time.Millisecond))
}
