package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/input"
	"github.com/regiond/regiond/quota"
)

// check serves POST /v1/check.
func (c *call) check() {
	req, ok := c.request(input.Check)
	if !ok {
		return
	}
	if d, ok := c.decide(Limiter.Check, req, ""); ok {
		c.verdict(&d, req.Dimensions)
	}
}

// verdict answers with a decision that allows or denies.
func (c *call) verdict(d *quota.Decision, dims quota.Dimensions) {
	c.logDecision(d, dims)
	switch {
	case d.Allowed:
		c.answer(d, http.StatusOK)
	case d.TurnedAway():
		c.answer(d, http.StatusServiceUnavailable)
	default:
		c.answer(d, http.StatusTooManyRequests)
	}
}

// report serves POST /v1/report: what has happened cannot be refused, so the
// answer is 200 even when the limit is now exceeded. It is 503 when nothing was
// charged, and the caller must send it again.
func (c *call) report() {
	req, ok := c.request(input.Check)
	if !ok {
		return
	}
	d, ok := c.decide(Limiter.Report, req, "reported")
	switch {
	case !ok:
	case d.TurnedAway():
		c.logDecision(&d, req.Dimensions)
		c.answer(&d, http.StatusServiceUnavailable)
	default:
		c.describe(&d, false)
		c.json(answer.Report(&d))
	}
}

// reserve serves POST /v1/reserve: the answer of a check, with a reservation where one was made.
func (c *call) reserve() {
	req, ok := c.request(input.Reserve)
	if !ok {
		return
	}
	o := c.Limiter.Reserve(c.timed(), []quota.Request{req})
	if d, ok := c.decided(o[0].Decision, o[0].Err, ""); ok {
		c.verdict(&d, req.Dimensions)
	}
}

// settle serves POST /v1/settle: what was used is charged, so the answer is 200 even when a limit is now exceeded.
func (c *call) settle() {
	d, ok := c.claim(input.Settle, ofClaims(Limiter.Settle), "settled")
	switch {
	case !ok:
	case d.Settlement == nil: // nothing was charged
		c.answer(&d, http.StatusServiceUnavailable)
	default:
		c.describe(&d, false)
		c.json(answer.Settled(&d))
	}
}

// extend serves POST /v1/extend.
func (c *call) extend() {
	if d, ok := c.claim(input.Extend, ofClaims(Limiter.Extend), ""); ok {
		c.verdict(&d, nil)
	}
}

// claim reads a claim and has the limiter carry it out; without a decision it answers and returns false.
func (c *call) claim(read func([]byte, string) input.Item, decide decider, label string) (d quota.Decision, ok bool) {
	body, ok := c.readBody()
	if !ok {
		return d, false
	}
	it := read(body, "")
	if c.query != "" {
		it.Errs = append(it.Errs, quota.FieldError{Detail: "this call has no parameters"})
	}
	if c.broken(it.Errs) {
		return d, false
	}
	o := decide(c, c.timed(), []input.Item{it})
	return c.decided(o[0].Decision, o[0].Err, label)
}

// usage serves GET /v1/usage/{tenant}: the answer of a check as information,
// so it is 200 also when a check would be denied, and 503 only when it was shed
// and there is no answer.
func (c *call) usage() { c.peek(false) }

// usageTimeout bounds a page of GET /v1/usage, which waits for others that are read, and for Redis.
const usageTimeout = 5 * time.Second

// listUsage serves GET /v1/usage: what all tenants have used in this region.
func (c *call) listUsage() {
	if !c.enter() {
		return
	}
	q, errs := input.Usage(c.query)
	switch {
	case c.broken(errs):
		return
	case c.Usage == nil:
		c.unavailable("The usage of all tenants is not known here.")
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, usageTimeout)
	defer cancel()
	page, err := c.Usage(ctx, q)
	if err != nil {
		c.failed(err, "usage not listed", "The usage cannot be listed now. Ask for the same page again.")
		return
	}
	c.json(page)
}

// explain serves GET /v1/explain/{tenant}: usage with the terms of the answer, and in words. The
// admin listener has it too, where it shows the names of tenants.
func (c *call) explain() {
	if why := c.hidesTenants(); c.endpoint.guard.admin() && why != "" {
		c.forbidden(why)
		return
	}
	c.peek(true)
}

func (c *call) peek(explain bool) {
	if !c.enter() {
		return
	}
	req, errs := input.Query(c.query, true)
	tenant, err := input.PathID(c.tail)
	if err != nil {
		errs = append(errs, quota.FieldError{Pointer: "/tenant", Detail: err.Error()})
	}
	req.Tenant = tenant
	if len(errs) > 0 {
		errs = input.Merge(errs, req.Validate())
	}
	if c.broken(errs) || !c.mayName(tenant) || !c.mayExplain(req.Explain && !explain) {
		return
	}
	req.Explain, req.Usage = req.Explain || explain, !explain
	d, ok := c.decide(Limiter.Peek, req, "")
	if c.caller.Scopes&access.Explain == 0 { // which other regions are to be seen by
		clear(d.Usage)
	}
	switch {
	case !ok:
	case d.Basis == quota.BasisShed:
		c.answer(&d, http.StatusServiceUnavailable)
	default:
		c.answer(&d, http.StatusOK)
	}
}

// decide calls a method of the limiter within the deadline; without a decision
// it answers and returns false. label is the span's for the decision, "" for
// allowed or denied.
func (c *call) decide(method func(Limiter, context.Context, quota.Request) (quota.Decision, error), req quota.Request, label string) (quota.Decision, bool) {
	d, err := method(c.Limiter, c.timed(), req)
	return c.decided(d, err, label)
}

// decided is decide for what the limiter has returned.
func (c *call) decided(d quota.Decision, err error, label string) (quota.Decision, bool) {
	if err != nil {
		c.failed(err, "undecided", noDecision)
		return d, false
	}
	d.ID = c.decisionID()
	c.traceDecision(&d, label)
	return d, true
}

// timed returns the context of a decision, which has to be made within the deadline of the call.
func (c *call) timed() context.Context {
	c.within = quota.Within(c.ctx, c.Now().Add(c.Deadline))
	return &c.within
}

// failed answers a request for which the limiter returned an error. what is the log
// text; detail is sent to the caller, unless the error is a *quota.Invalid, which is
// sent itself.
func (c *call) failed(err error, what, detail string) {
	var bad *quota.Invalid
	if errors.As(err, &bad) {
		c.nameLimit(bad.Limit)
		c.refuse(answer.Broken(bad.Fault, bad.Fields...))
		return
	}
	c.logRefusal(what, err.Error())
	c.unavailable(detail)
}

// answer writes a decision under a status: alone, or as part of the problem
// document of a denial.
func (c *call) answer(d *quota.Decision, status int) {
	c.describe(d, status != http.StatusOK)
	if status == http.StatusOK {
		c.json(answer.Decision(d))
		return
	}
	c.write(status, typeProblem, answer.JSON(denial(d, status)))
}

// denial is the answer of a denial, under a status or, if that is 0, its own.
func denial(d *quota.Decision, status int) *answer.Body {
	p := answer.Denial(d)
	p.Status = status
	return answer.Decision(d).With(&p)
}

// describe sets the header fields of a decision.
func (c *call) describe(d *quota.Decision, denied bool) {
	c.Fields.RateLimit(d, answer.Input{Headers: c.settings.Headers, Jitter: c.Jitter(), NowUS: c.start.UnixMicro(), Denied: denied})
	if d.Replayed && !c.forwardAuth() {
		c.Fields.Set("Idempotency-Replayed", "true")
	}
	if s := d.DeniedBy(); s != nil && denied {
		c.nameLimit(s.Limit)
	}
}

func (c *call) nameLimit(l *quota.Limit) {
	if l != nil {
		c.Fields.Set(answer.LimitHeader, l.Name)
	}
}
