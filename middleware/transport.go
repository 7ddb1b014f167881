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
	// DefaultMaxWait is longer than a per-second limit ever asks for, and short
	// enough for somebody who waits.
	DefaultMaxWait = 30 * time.Second
)

// Transport is an http.RoundTripper for clients of an API that is limited. It
// waits as long as a 429 says in Retry-After, adds a little chance so that clients
// do not come back together, and sends the request again. The zero value is ready
// to use:
//
//	http.Client{Transport: &middleware.Transport{}}
//
// A 429 has not been carried out, so any method is sent again. A 503 may have
// been: only one with Retry-After, and only methods that may be repeated. A body
// has to be replayable (http.Request.GetBody, which http.NewRequest sets for
// bytes and strings). What cannot or may not be sent again is returned as it is,
// as is the answer to the last attempt. It is safe for concurrent use.
type Transport struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Attempts is how often a request is sent at most, 0 means DefaultAttempts.
	Attempts int
	// MaxWait is the longest single wait that may be asked for, the added chance not
	// counted; when it is more, the answer is returned at once, so that the caller may
	// decide. 0 means DefaultMaxWait.
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
		if err != nil || attempt >= attempts || !repeatable(req, resp) {
			return resp, err
		}
		least := asked(resp, attempt)
		wait := jittered(least, rand.Float64())
		if !t.worth(req, least, wait) {
			return resp, nil
		}
		// The connection is reused only when the body was read.
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		resp.Body.Close()
		if err := pause(req, wait); err != nil {
			return nil, err
		}
		if req, err = replay(req); err != nil {
			return nil, err
		}
	}
}

// worth reports whether what is asked for is short enough, and the wait that chance
// has made of it ends before the deadline. By chance alone nobody is turned away.
func (t *Transport) worth(req *http.Request, least, wait time.Duration) bool {
	if least > cmp.Or(t.MaxWait, DefaultMaxWait) {
		return false
	}
	deadline, ok := req.Context().Deadline()
	return !ok || time.Until(deadline) > wait
}

func repeatable(req *http.Request, resp *http.Response) bool {
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

// asked is how long the server wants us to wait: the seconds or the date of
// Retry-After. Without one it is a second, doubled with each attempt.
func asked(resp *http.Response, attempt int) time.Duration {
	field := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(field, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(field); err == nil {
		return max(0, time.Until(at))
	}
	return time.Second << min(attempt-1, 10)
}

// jittered adds up to a tenth of the wait and a tenth of a second; chance is in
// [0, 1). It never takes anything away: earlier is in vain.
func jittered(wait time.Duration, chance float64) time.Duration {
	return wait + time.Duration(chance*float64(wait/10+100*time.Millisecond))
}

func replay(req *http.Request) (*http.Request, error) {
	again := req.Clone(req.Context())
	if req.GetBody == nil {
		return again, nil
	}
	body, err := req.GetBody()
	again.Body = body
	return again, err
}

func pause(req *http.Request, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}
