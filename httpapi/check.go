package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/input"
	"github.com/regiond/regiond/quota"
)

// check serves POST /v1/check.
func (c *call) check() {
	req, ok := c.request()
	if !ok {
		return
	}
	d, ok := c.decide(Limiter.Check, req, "")
	if !ok {
		return
	}
	c.logDecision(&d, req.Dimensions)
	switch {
	case d.Allowed:
		c.answer(&d, http.StatusOK)
	case d.TurnedAway():
		c.answer(&d, http.StatusServiceUnavailable)
	default:
		c.answer(&d, http.StatusTooManyRequests)
	}
}

// report serves POST /v1/report: what has happened cannot be refused, so the
// answer is 200 even when the limit is now exceeded. It is 503 when nothing was
// charged, and the caller must send it again.
func (c *call) report() {
	req, ok := c.request()
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
		o := answer.NewObject(answer.Small)
		o.Report(&d)
		c.write(http.StatusOK, typeJSON, o.End())
	}
}

// usage serves GET /v1/usage/{tenant}: the answer of a check as information,
// so it is 200 also when a check would be denied, and 503 only when it was shed
// and there is no answer.
func (c *call) usage() { c.peek(false) }

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
		c.refuse(answer.Broken(quota.FaultInput, input.Merge(errs, req.Validate())...))
		return
	}
	if !c.mayName(tenant) || !c.mayExplain(req.Explain && !explain) {
		return
	}
	req.Explain = req.Explain || explain
	d, ok := c.decide(Limiter.Peek, req, "")
	switch {
	case !ok:
	case d.Basis == quota.BasisShed:
		c.answer(&d, http.StatusServiceUnavailable)
	default:
		c.answer(&d, http.StatusOK)
	}
}

// batch serves POST /v1/check:batch. The checks that could be decoded are
// decided together, and each result has the place of its check. Rate limit
// fields are left out: they describe one decision.
func (c *call) batch() {
	body, ok := c.readBody()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.Deadline)
	defer cancel()
	var items []input.Item
	var errs []quota.FieldError
	if !c.inTurn(ctx, func() { items, errs = input.Batch(body) }) {
		c.shed()
		return
	}
	query, wrong := input.Query(c.query, false)
	errs = append(errs, wrong...)
	if len(c.Header.Values(idempotencyHeader)) > 0 {
		errs = append(errs, quota.FieldError{Detail: "header Idempotency-Key belongs to one check and cannot come with a batch"})
	}
	if len(errs) > 0 {
		c.refuse(answer.Broken(quota.FaultInput, errs...))
		return
	}
	if !c.mayExplain(query.Explain) {
		return
	}
	decoded := make([]quota.Request, 0, len(items))
	for i := range items {
		if len(items[i].Errs) == 0 && c.caller.MayName(items[i].Request.Tenant) {
			items[i].Request.Explain = query.Explain
			decoded = append(decoded, items[i].Request)
		}
	}
	var outcomes []quota.Outcome
	if len(decoded) > 0 {
		outcomes = c.Limiter.CheckBatch(ctx, decoded)
	}
	c.traceBatch(len(items), outcomes)
	// What was charged is answered, however late.
	c.inTurn(context.Background(), func() { c.write(http.StatusOK, typeJSON, c.results(items, outcomes)) })
}

// inTurn works on a long body while few others are worked on. Go runs what is ready first come, first served: beside hundreds
// of batches of a hundred, the answers of Redis would wait for all of them. It returns false where ctx ends before the turn comes.
func (h *Handler) inTurn(ctx context.Context, work func()) bool {
	select {
	case h.turns <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-h.turns }()
	work()
	return true
}

// results renders the answer of a batch; outcomes are those of the items without errors.
func (c *call) results(items []input.Item, outcomes []quota.Outcome) []byte {
	out := append(answer.NewObject(len(items)*answer.Small), `"results":[`...)
	room := answer.MaxBroken - len(items)*answer.MaxBrief // for problems
	for i := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '{')
		o := &quota.Outcome{Err: errors.New("the limiter returned too few outcomes")}
		if len(items[i].Errs) == 0 && c.caller.MayName(items[i].Request.Tenant) && len(outcomes) > 0 {
			o, outcomes = &outcomes[0], outcomes[1:]
		}
		before := len(out)
		if p := c.result(&items[i], i, o); p != nil {
			if room > 0 {
				out.Problem(p)
				room -= len(out) - before
			}
			if room <= 0 {
				out = out[:before]
				out.Brief(p)
			}
		} else {
			c.outcome(&out, &o.Decision, items[i].Request.Dimensions)
		}
		out = append(out, '}')
	}
	return append(out, "]}\n"...)
}

// result returns the problem of check i of a batch that has no decision, with pointers into the batch; else nil.
func (c *call) result(it *input.Item, i int, o *quota.Outcome) *answer.Problem {
	var bad *quota.Invalid
	var p answer.Problem
	switch {
	case len(it.Errs) > 0:
		p = answer.Broken(quota.FaultInput, it.Errs...)
	case !c.caller.MayName(it.Request.Tenant):
		p = answer.Problem{Kind: answer.Forbidden, Detail: noTenant}
	case errors.As(o.Err, &bad):
		p = answer.Broken(bad.Fault, slices.Clone(bad.Fields)...)
		for k := range p.Errs {
			p.Errs[k].Pointer = "/checks/" + strconv.Itoa(i) + p.Errs[k].Pointer
		}
	case o.Err != nil:
		c.logRefusal("undecided", o.Err.Error())
		p = answer.Problem{Kind: answer.Reduced, Detail: noDecision}
	default:
		return nil
	}
	return &p
}

// outcome appends a decision of a batch.
func (c *call) outcome(out *answer.Object, d *quota.Decision, dims quota.Dimensions) {
	if d.Allowed {
		out.Number("status", http.StatusOK)
	} else {
		p := answer.Denial(d)
		out.Problem(&p)
	}
	d.ID = c.decisionID()
	c.logDecision(d, dims)
	out.Decision(d)
}

// decide calls a method of the limiter within the deadline; without a decision
// it answers and returns false. label is the span's for the decision, "" for
// allowed or denied.
func (c *call) decide(method func(Limiter, context.Context, quota.Request) (quota.Decision, error), req quota.Request, label string) (quota.Decision, bool) {
	d, err := method(c.Limiter, c.timed(), req)
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
		o := answer.NewObject(answer.Small)
		o.Decision(d)
		c.write(status, typeJSON, o.End())
		return
	}
	o, p := answer.NewObject(answer.Large), answer.Denial(d)
	p.Status = status
	o.Problem(&p)
	o.Decision(d)
	c.write(status, typeProblem, o.End())
}

// describe sets the header fields of a decision.
func (c *call) describe(d *quota.Decision, denied bool) {
	c.Fields.RateLimit(d, answer.Input{Headers: c.settings.Headers, Jitter: c.Jitter(), NowUS: c.start.UnixMicro(), Denied: denied})
	if d.Replayed && !c.forwardAuth() {
		c.Fields.Set("Idempotency-Replayed", "true")
	}
	if s := d.DeniedBy(); s != nil && denied {
		c.nameLimit(s.Limit.Name)
	}
}

func (c *call) nameLimit(name string) {
	if name != "" {
		c.Fields.Set(answer.LimitHeader, name)
	}
}
