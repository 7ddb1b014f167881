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

// maxAnswer bounds what is read of an answer. One with a hundred limits is 20 KiB.
const maxAnswer = 1 << 20

// Client asks one regiond, or a load balancer before several of one region. It is
// safe for concurrent use and starts no goroutine that outlives a question, apart
// from those of its idle connections.
type Client struct {
	options  Options
	endpoint string
	http     *http.Client
}

// New returns a client, or what is wrong with the options. It asks nobody yet.
func New(o Options) (*Client, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	return &Client{options: o, endpoint: strings.TrimSuffix(o.URL, "/") + "/v1/check", http: o.client()}, nil
}

// Check asks regiond and returns its decision. While regiond is away the decision
// is the one of Options.OnAway, with Away set, and no error. An error is either an
// *InvalidError, or the caller's own context that has ended; the decision is then
// zero, which denies.
//
// It asks once. A question that failed may have been charged all the same; set
// Check.IdempotencyKey to ask again for nothing.
func (c *Client) Check(ctx context.Context, check Check) (Decision, error) {
	d, err := c.check(ctx, check)
	if c.options.Observe != nil {
		c.options.Observe(ctx, check, d, err)
	}
	return d, err
}

func (c *Client) check(ctx context.Context, check Check) (Decision, error) {
	body, err := json.Marshal(check)
	if err != nil {
		return Decision{}, fmt.Errorf("write the question: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(bounded, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return Decision{}, fmt.Errorf("write the question: %w", err)
	}
	c.fields(req.Header, &check)
	d, err := c.send(req)
	if err == nil {
		return d, nil
	}
	if ctx.Err() != nil { // whoever asked has left, or ran out of time
		return Decision{}, fmt.Errorf("ask regiond: %w", ctx.Err())
	}
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return Decision{}, invalid
	}
	return Decision{Allowed: c.options.OnAway == Open, Away: true, Cause: fmt.Errorf("%w: %w", ErrAway, err)}, nil
}

func (c *Client) fields(h http.Header, check *Check) {
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

// send returns a decision, an *InvalidError, or any other error when regiond is away.
func (c *Client) send(req *http.Request) (Decision, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return Decision{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Decision{}, fmt.Errorf("read the answer: %w", err)
	}
	switch {
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		return decode(resp, body)
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		return Decision{}, &InvalidError{Status: resp.StatusCode, Detail: detail(body)}
	default:
		return Decision{}, fmt.Errorf("it answers %s", resp.Status)
	}
}

// answer is regiond's JSON, as far as it is read here.
type answer struct {
	Allowed      *bool  `json:"allowed"`
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
}

// decode reads a decision. A 200 or 503 without one is not regiond's: some proxy
// on the way, or another server on its port.
func decode(resp *http.Response, body []byte) (Decision, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Decision{}, fmt.Errorf("its answer of status %d is no decision: %w", resp.StatusCode, err)
	}
	if a.Allowed == nil || *a.Allowed != (resp.StatusCode == http.StatusOK) {
		return Decision{}, fmt.Errorf("its answer of status %d is no decision", resp.StatusCode)
	}
	d := Decision{
		Allowed: *a.Allowed, Status: resp.StatusCode,
		Policy: a.Policy, Name: a.Name, Limit: a.Limit, Remaining: a.Remaining,
		RetryAfter: time.Duration(a.RetryAfterMS) * time.Millisecond,
		ResetAfter: time.Duration(a.ResetAfterMS) * time.Millisecond,
		Basis:      a.Basis, Mode: a.Mode, Reason: a.Reason, WouldDeny: a.WouldDeny,
		Header: make(http.Header, 4),
	}
	for field, values := range resp.Header {
		if strings.HasPrefix(field, "Ratelimit") || strings.HasPrefix(field, "X-Ratelimit-") || field == "Retry-After" {
			d.Header[field] = values
		}
	}
	return d, nil
}

// detail finds the sentence in a problem document that says what was wrong.
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
