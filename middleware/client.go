package middleware

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxAnswer bounds the bytes read of an answer. One with a hundred limits has 20 KiB.
const maxAnswer = 1 << 20

// Bounds of a check, in bytes. regiond refuses a larger one while it is being sent, which may look
// as if it were away; so it is refused here, and never passes for its size.
// A field counts as in HTTP/2, whose client refuses what the server says that it does not take.
const (
	maxBody   = 64 << 10
	maxHeader = 15 << 10 // regiond's is 16 KiB, with what net/http adds
	ofField   = 32       // besides name and value
)

// Client calls one regiond, or a load balancer in front of several of one region.
// It is safe for concurrent use. It starts no goroutine that outlives a check,
// apart from those of its idle connections.
type Client struct {
	options Options
	base    string // of the URLs that it calls
	http    *http.Client
}

// New returns a client, or what is wrong with the options. It does not connect.
func New(o Options) (*Client, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	return &Client{options: o, base: strings.TrimSuffix(o.URL, "/"), http: o.client()}, nil
}

// Check returns regiond's decision. A check that regiond shed is denied, whatever
// Options.OnAway is: the policy's on_overload decides, and load must not buy a way around
// the limits. While regiond is unavailable the decision is that of OnAway, with Away set,
// and no error. An error is an *InvalidError,
// or that of the caller's own context; the decision is then zero, which denies.
//
// It does not retry. A check that failed may have been charged; with
// Check.IdempotencyKey the caller can retry without a second charge.
func (c *Client) Check(ctx context.Context, check Check) (Decision, error) {
	d, err := c.decide(ctx, "/v1/check", check, &check)
	if c.options.Observe != nil {
		c.options.Observe(ctx, check, d, err)
	}
	return d, err
}

// decide sends what is decided about a check.
func (c *Client) decide(ctx context.Context, path string, about any, check *Check) (d Decision, err error) {
	a, err := c.post(ctx, path, about, check)
	if err == nil {
		d, err = a.decision()
	}
	switch {
	case err == nil || errors.As(err, new(*InvalidError)):
		return d, err
	case ctx.Err() != nil:
		return Decision{}, fmt.Errorf("call regiond: %w", ctx.Err())
	}
	return Decision{Allowed: c.options.OnAway == Open, Away: true, Cause: fmt.Errorf("%w: %w", ErrAway, err)}, nil
}

// answer is what came back of a call.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// post makes a call, for a check or none. The error is an *InvalidError where it is refused for good, or any other while regiond
// is unavailable.
func (c *Client) post(ctx context.Context, path string, about any, check *Check) (*answer, error) {
	text, err := json.Marshal(about)
	if err != nil {
		return nil, &InvalidError{http.StatusBadRequest, "it has no JSON: " + err.Error()}
	}
	bounded, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(bounded, http.MethodPost, c.base+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c.setHeader(req.Header, check)
	if c.options.Propagate != nil && check.TraceParent == "" && check.TraceState == "" {
		c.options.Propagate(ctx, req.Header)
	}
	if err := unsendable(len(text), req.Header); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if s := resp.StatusCode; s >= 400 && s < 500 && s != http.StatusTooManyRequests {
		return nil, &InvalidError{Status: s, Detail: detail(body)}
	}
	return &answer{resp.StatusCode, resp.Header, body}, nil
}

// unsendable returns an *InvalidError for a check that regiond would not read or net/http not send, else nil.
func unsendable(body int, header http.Header) error {
	if body > maxBody {
		return &InvalidError{http.StatusRequestEntityTooLarge, fmt.Sprintf(
			"the check has %d bytes, at most %d are sent: bound what becomes a tenant or a dimension", body, maxBody)}
	}
	size := 0
	for name, values := range header {
		if name == "" || strings.Trim(name, nameCharacters) != "" {
			return &InvalidError{http.StatusBadRequest, fmt.Sprintf(
				"the check has a field named %q, which cannot be sent: check what Options.Propagate adds", name)}
		}
		for _, value := range values {
			size += len(name) + len(value) + ofField
			if strings.ContainsFunc(value, isControl) {
				return &InvalidError{http.StatusBadRequest, fmt.Sprintf(
					"the field %s of the check has a control character, which cannot be sent: check what it is made of", name)}
			}
		}
	}
	if size > maxHeader {
		return &InvalidError{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf(
			"the header of the check has %d bytes, at most %d are sent: bound trace context and idempotency key", size, maxHeader)}
	}
	return nil
}

// nameCharacters are those of a field's name, as in RFC 9110.
const nameCharacters = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// isControl is whether a rune may not be in a field's value.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func (c *Client) setHeader(h http.Header, check *Check) {
	h.Set("Content-Type", "application/json")
	for field, value := range map[string]string{
		"Idempotency-Key": check.IdempotencyKey,
		"Traceparent":     check.TraceParent,
		"Tracestate":      check.TraceState,
	} {
		if value != "" {
			h.Set(field, value)
		}
	}
	if c.options.Token != "" {
		h.Set("Authorization", "Bearer "+c.options.Token)
	}
}

// decision reads one. A 200 or 503 without one is not regiond's, but of a
// proxy in between or of another server on its port.
func (a *answer) decision() (Decision, error) {
	switch a.status {
	case http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		return Decision{}, fmt.Errorf("unexpected status %d %s", a.status, http.StatusText(a.status))
	}
	var v struct {
		Allowed      *bool  `json:"allowed"`
		ID           string `json:"id"`
		Policy       string `json:"policy"`
		Name         string `json:"name"`
		Limit        int64  `json:"limit"`
		Remaining    int64  `json:"remaining"`
		RetryAfterMS int64  `json:"retry_after_ms"`
		ResetAfterMS int64  `json:"reset_after_ms"`
		Basis        string `json:"basis"`
		Mode         string `json:"mode"`
		Reason       string `json:"reason"`
		WouldDeny    bool   `json:"would_deny"`

		Reservation granted `json:"reservation"`
	}
	err := json.Unmarshal(a.body, &v)
	if err != nil || v.Allowed == nil || *v.Allowed != (a.status == http.StatusOK) {
		return Decision{}, errors.Join(fmt.Errorf("an answer of status %d without a decision", a.status), err)
	}
	d := Decision{
		Allowed: *v.Allowed, Status: a.status, ID: v.ID,
		Policy: v.Policy, Name: v.Name, Limit: v.Limit, Remaining: v.Remaining,
		RetryAfter: time.Duration(v.RetryAfterMS) * time.Millisecond,
		ResetAfter: time.Duration(v.ResetAfterMS) * time.Millisecond,
		Basis:      v.Basis, Mode: v.Mode, Reason: v.Reason, WouldDeny: v.WouldDeny,
		Header: make(http.Header, 4), reservation: v.Reservation,
	}
	for field, values := range a.header {
		if strings.HasPrefix(field, "Ratelimit") || strings.HasPrefix(field, "X-Ratelimit-") || field == "Retry-After" || field == "X-Regiond-Limit" {
			d.Header[field] = values
		}
	}
	return d, nil
}

// detail sums up a problem document in one line.
func detail(body []byte) string {
	var p struct {
		Title, Detail string
		Errors        []struct{ Pointer, Detail string }
	}
	if json.Unmarshal(body, &p) != nil {
		return "no problem document"
	}
	text := cmp.Or(p.Detail, p.Title, "no detail")
	for _, e := range p.Errors {
		text += "; " + e.Pointer + ": " + e.Detail
	}
	return text
}
