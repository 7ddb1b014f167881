package httpapi

import (
	"context"
	"errors"
	"time"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/input"
	"github.com/regiond/regiond/quota"
)

// operation is what calls do with an item: one of /v1/check and the like, up to a hundred of /v1/check:batch.
type operation struct {
	read   func(body []byte, base string) input.Item
	decide func(ctx context.Context, c *call, items []input.Item) []quota.Outcome
	claims bool // about a reservation
	// charges is that of what has happened already, which cannot be refused: the answer is 200 even when a limit is now
	// exceeded, and 503 when nothing was charged, so that the caller must send it again.
	charges bool
}

func (op *operation) reports() bool { return op.charges && !op.claims }

// one serves the call of one item.
func (op operation) one(c *call) {
	it, ok := c.item(&op)
	if !ok {
		return
	}
	if o := &op.decide(c.timed(), c, []input.Item{it})[0]; c.decided(o, op.reports()) {
		c.answer(&o.Decision, op.body(c, &o.Decision, it.Request.Dimensions))
	}
}

// body is the answer about a decision, alone or in a batch; one with a status refuses.
func (op *operation) body(c *call, d *quota.Decision, dims quota.Dimensions) *answer.Body {
	switch {
	case d.Settlement != nil:
		return answer.Settled(d)
	case op.reports() && !d.TurnedAway():
		return answer.Report(d)
	}
	c.logDecision(d, dims)
	if d.Allowed && !op.charges {
		return answer.Decision(d)
	}
	return c.denial(d)
}

// asking has the limiter answer items as questions.
func asking(ask quota.Ask) func(context.Context, *call, []input.Item) []quota.Outcome {
	return func(ctx context.Context, c *call, items []input.Item) []quota.Outcome {
		qs := make([]quota.Question, len(items))
		for i := range items {
			qs[i] = quota.Question{Request: items[i].Request, Ask: ask}
		}
		return c.Limiter.Decide(ctx, qs)
	}
}

func reserving(ctx context.Context, c *call, items []input.Item) []quota.Outcome {
	rs := make([]quota.Request, len(items))
	for i := range items {
		rs[i] = items[i].Request
	}
	return c.Limiter.Reserve(ctx, rs)
}

func claiming(
	claim func(Limiter, context.Context, []quota.Claim) []quota.Outcome,
) func(context.Context, *call, []input.Item) []quota.Outcome {
	return func(ctx context.Context, c *call, items []input.Item) []quota.Outcome {
		cs := make([]quota.Claim, len(items))
		for i := range items {
			cs[i] = items[i].Claim
			cs[i].May = c.caller.MayName
		}
		return claim(c.Limiter, ctx, cs)
	}
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
	o := &c.Limiter.Decide(c.timed(), []quota.Question{{Request: req, Ask: quota.AskPeek}})[0]
	d := &o.Decision
	if c.caller.Scopes&access.Explain == 0 { // which other regions are to be seen by
		clear(d.Usage)
	}
	switch {
	case !c.decided(o, false):
	case d.Basis == quota.BasisShed:
		c.answer(d, c.denial(d))
	default:
		c.answer(d, answer.Decision(d))
	}
}

// decided reports whether the limiter has decided; without a decision it answers.
func (c *call) decided(o *quota.Outcome, report bool) bool {
	if o.Err != nil {
		c.failed(o.Err, "undecided", noDecision)
		return false
	}
	o.Decision.ID = c.decisionID()
	c.traceDecision(&o.Decision, report)
	return true
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
	if !errors.As(err, &bad) {
		c.logRefusal(what, err.Error())
		c.unavailable(detail)
		return
	}
	p := answer.Broken(bad.Fault, bad.Fields...)
	if c.forwardAuth() {
		c.logRefusal("invalid", bad.Error())
		if p.Kind != answer.Cost {
			p.Kind = answer.Identity
		}
	}
	c.nameLimit(bad.Limit)
	c.refuse(p)
}

// answer writes an answer about a decision.
func (c *call) answer(d *quota.Decision, b *answer.Body) {
	c.decision = d
	c.describe(d, b.Status != 0)
	if b.Status == 0 {
		c.json(b)
		return
	}
	c.write(b.Status, typeProblem, answer.JSON(b))
}

// denial is the answer of a denial: of a gateway's client the problem and which limits refused.
func (c *call) denial(d *quota.Decision) *answer.Body {
	p := answer.Denial(d)
	if c.forwardAuth() {
		c.forGateway(&p)
		return answer.Refusal(d).With(&p)
	}
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
