package httpapi

import (
	"context"
	"net/http"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/input"
	"github.com/regiond/regiond/quota"
)

// reserve serves POST /v1/reserve: the answer of a check, with a reservation where one was made.
func (c *call) reserve() {
	req, ok := c.request(input.Reserve)
	if !ok {
		return
	}
	one := func(l Limiter, ctx context.Context, r quota.Request) (quota.Decision, error) {
		o := l.Reserve(ctx, []quota.Request{r})
		return o[0].Decision, o[0].Err
	}
	if d, ok := c.decide(one, req, ""); ok {
		c.verdict(&d, req.Dimensions)
	}
}

// settle serves POST /v1/settle: what was used is charged, so the answer is 200 even when a limit is now exceeded.
func (c *call) settle() {
	d, ok := c.claim(input.Settle, Limiter.Settle, "settled")
	switch {
	case !ok:
	case d.Settlement == nil: // nothing was charged
		c.answer(&d, http.StatusServiceUnavailable)
	default:
		c.describe(&d, false)
		o := answer.NewObject(answer.Small)
		o.Settled(&d)
		c.write(http.StatusOK, typeJSON, o.End())
	}
}

// extend serves POST /v1/extend.
func (c *call) extend() {
	if d, ok := c.claim(input.Extend, Limiter.Extend, ""); ok {
		c.verdict(&d, nil)
	}
}

// claim reads a claim and has the limiter carry it out; without a decision it answers and returns false.
func (c *call) claim(
	read func([]byte, string) (quota.Claim, []quota.FieldError),
	method func(Limiter, context.Context, []quota.Claim) []quota.Outcome, label string,
) (quota.Decision, bool) {
	body, ok := c.readBody()
	if !ok {
		return quota.Decision{}, false
	}
	claim, errs := read(body, "")
	if c.query != "" {
		errs = append(errs, quota.FieldError{Detail: "this call has no parameters"})
	}
	if len(errs) > 0 {
		c.refuse(answer.Broken(quota.FaultInput, errs...))
		return quota.Decision{}, false
	}
	claim.May = c.caller.MayName
	o := method(c.Limiter, c.timed(), []quota.Claim{claim})
	return c.decided(o[0].Decision, o[0].Err, label)
}
