package httpapi

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/regiond/regiond/quota"
)

// check serves POST /v1/check.
func (c *call) check() {
	req, ok := c.request()
	if !ok {
		return
	}
	ctx := c.deadline()
	defer ctx.end()
	d, err := c.Limiter.Check(ctx, req)
	if err != nil {
		c.undecided(err)
		return
	}
	c.traceDecision(&d, "")
	c.logDecision(&d, req.Dimensions)
	status := http.StatusOK
	if !d.Allowed {
		status = http.StatusTooManyRequests
		if closed(&d) {
			status = http.StatusServiceUnavailable
		}
	}
	c.decided(&d, status)
}

// report serves POST /v1/report: what has happened cannot be refused, so the
// answer is 200 even when the limit is now exceeded.
func (c *call) report() {
	req, ok := c.request()
	if !ok {
		return
	}
	ctx := c.deadline()
	defer ctx.end()
	d, err := c.Limiter.Report(ctx, req)
	if err != nil {
		c.undecided(err)
		return
	}
	c.traceDecision(&d, "reported")
	c.decided(&d, http.StatusOK)
}

// usage serves GET /v1/usage/{tenant}: the answer of a check as information,
// so it is 200 whatever it says.
func (c *call) usage() {
	q, mistakes := parseQuery(c.r.URL.RawQuery, true)
	req := q.request
	req.Explain = q.explain
	tenant, err := pathID(c.tail)
	if err != nil {
		mistakes = append(mistakes, quota.FieldError{Pointer: "/tenant", Detail: err.Error()})
	}
	req.Tenant = tenant
	mistakes = merge(mistakes, req.Validate(), "")
	if len(mistakes) > 0 {
		c.refuse(invalid(quota.FaultInput, mistakes))
		return
	}
	ctx := c.deadline()
	defer ctx.end()
	d, err := c.Limiter.Peek(ctx, req)
	if err != nil {
		c.undecided(err)
		return
	}
	c.traceDecision(&d, "")
	c.decided(&d, http.StatusOK)
}

// request reads the request of a check or report, and answers itself when it
// cannot.
func (c *call) request() (quota.Request, bool) {
	if !c.readBody() {
		return quota.Request{}, false
	}
	req, mistakes := c.decode.check(c.in)
	q, wrong := parseQuery(c.r.URL.RawQuery, false)
	mistakes = append(mistakes, wrong...)
	key, err := idempotencyKey(c.r.Header)
	if err != nil {
		mistakes = append(mistakes, quota.FieldError{Detail: err.Error()})
	}
	if len(mistakes) > 0 {
		c.refuse(invalid(quota.FaultInput, mistakes))
		return quota.Request{}, false
	}
	req.Explain, req.IdempotencyKey = q.explain, key
	return req, true
}

const idempotencyHeader = "Idempotency-Key"

// idempotencyKey returns the key of a request, "" when it has none. The value
// is taken as it stands, quotes included where a client sends the structured
// string of the draft.
func idempotencyKey(h http.Header) (string, error) {
	lines := h[idempotencyHeader]
	switch {
	case len(lines) == 0:
		return "", nil
	case len(lines) > 1:
		return "", errors.New("header Idempotency-Key stands twice")
	case len(lines[0]) > quota.MaxIdempotencyKey:
		return "", errors.New("header Idempotency-Key must have at most " + strconv.Itoa(quota.MaxIdempotencyKey) + " characters")
	}
	if err := quota.ValidID(lines[0]); err != nil {
		return "", errors.New("header Idempotency-Key " + err.Error())
	}
	return lines[0], nil
}

// undecided answers for an error of the limiter, which made no decision.
func (c *call) undecided(err error) { c.failed(err, "undecided", noDecision) }

// failed answers for an error of the limiter. what is its word in the log, detail what
// the caller is told unless the mistake is his.
func (c *call) failed(err error, what, detail string) {
	var bad *quota.Invalid
	if errors.As(err, &bad) {
		c.refuse(invalid(bad.Fault, bad.Fields))
		return
	}
	c.logRefusal(what, err.Error())
	c.reduced(detail)
}

// decided writes a decision under a status: alone, or within the problem
// document that a denial is.
func (c *call) decided(d *quota.Decision, status int) {
	denied := status != http.StatusOK
	h := c.w.Header()
	c.field = setFields(h, d, c.fieldInput(denied), c.field)
	if d.Replayed {
		h["Idempotency-Replayed"] = []string{"true"}
	}
	contentType := c.json
	c.out = append(c.out[:0], '{')
	if denied {
		contentType = c.problem
		p := refusal(d, c.field)
		p.status = status
		c.out = appendRefusal(c.out, d, &p)
		c.out = append(c.out, ',')
	}
	c.out = appendDecision(c.out, d)
	c.out = append(c.out, '}', '\n')
	c.write(status, contentType, c.out)
}

func (c *call) fieldInput(denied bool) fieldInput {
	return fieldInput{headers: c.settings.Headers, jitter: c.Jitter(), nowUS: c.start.UnixMicro(), denied: denied}
}
