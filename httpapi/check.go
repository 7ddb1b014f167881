package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

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
		c.answerAs(&d, http.StatusOK, true)
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
	req, errs := parseQuery(c.query, true)
	tenant, err := pathID(c.tail)
	if err != nil {
		errs = append(errs, quota.FieldError{Pointer: "/tenant", Detail: err.Error()})
	}
	req.Tenant = tenant
	if len(errs) > 0 {
		c.refuse(invalid(quota.FaultInput, merge(errs, req.Validate(), "")))
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
	if !c.readBody() {
		return
	}
	var items []item
	var errs []quota.FieldError
	if !c.inTurn(func() { items, errs = c.decode.batch(&c.in) }) {
		return
	}
	query, wrong := parseQuery(c.query, false)
	errs = append(errs, wrong...)
	if len(c.values(idempotencyHeader)) > 0 {
		errs = append(errs, quota.FieldError{Detail: "header Idempotency-Key belongs to one check and cannot come with a batch"})
	}
	if len(errs) > 0 {
		c.refuse(invalid(quota.FaultInput, errs))
		return
	}
	if !c.mayExplain(query.Explain) {
		return
	}
	decoded := make([]quota.Request, 0, len(items))
	for i := range items {
		if items[i].foreign = !c.caller.MayName(items[i].request.Tenant); len(items[i].errs) == 0 && !items[i].foreign {
			items[i].request.Explain = query.Explain
			decoded = append(decoded, items[i].request)
		}
	}
	var outcomes []quota.Outcome
	if len(decoded) > 0 {
		outcomes = c.Limiter.CheckBatch(c.within(c.Deadline), decoded)
	}
	c.traceBatch(len(items), outcomes)
	func() { // what was charged is answered, however late
		c.turns <- struct{}{}
		defer func() { <-c.turns }()
		c.appendResults(items, outcomes)
	}()
	c.write(http.StatusOK, typeJSON, c.out)
}

// inTurn reads a long body while few others are read. Go runs what is ready first come, first served: beside hundreds of
// batches of a hundred, the answers of Redis would wait for all of them. It answers and returns false where the turn does not
// come in time.
func (c *call) inTurn(work func()) bool {
	select {
	case c.turns <- struct{}{}:
	default:
		timer := time.NewTimer(c.Deadline)
		defer timer.Stop()
		select {
		case c.turns <- struct{}{}:
		case <-timer.C:
			c.shed()
			return false
		}
	}
	defer func() { <-c.turns }()
	work()
	return true
}

// appendResults appends the answer of a batch; outcomes are those of the items without errors.
func (c *call) appendResults(items []item, outcomes []quota.Outcome) {
	c.out = append(c.out[:0], `{"results":[`...)
	c.room = maxAnswer - len(items)*maxBrief
	for i := range items {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, '{')
		switch {
		case len(items[i].errs) > 0:
			c.appendInvalid(invalid(quota.FaultInput, items[i].errs))
		case items[i].foreign:
			c.appendInvalid(problem{kind: kindForbidden, detail: noTenant})
		case len(outcomes) == 0:
			c.appendOutcome(&quota.Outcome{Err: errors.New("the limiter returned too few outcomes")}, i, nil)
		default:
			c.appendOutcome(&outcomes[0], i, items[i].request.Dimensions)
			outcomes = outcomes[1:]
		}
		c.out = append(c.out, '}')
	}
	c.out = append(c.out, "]}\n"...)
}

// appendInvalid appends the problem of a check that breaks rules, in brief once there is
// no room left.
func (c *call) appendInvalid(p problem) {
	before := len(c.out)
	if c.room > 0 {
		c.out = p.appendMembers(c.out)
		c.room -= len(c.out) - before
	}
	if c.room <= 0 {
		c.out = p.appendBrief(c.out[:before])
	}
}

// appendOutcome appends the outcome of check i, with pointers into the batch.
func (c *call) appendOutcome(o *quota.Outcome, i int, dims quota.Dimensions) {
	var bad *quota.Invalid
	switch {
	case errors.As(o.Err, &bad):
		c.appendInvalid(invalid(bad.Fault, merge(nil, bad.Fields, "/checks/"+strconv.Itoa(i))))
		return
	case o.Err != nil:
		c.logRefusal("undecided", o.Err.Error())
		p := problem{kind: kindReduced, detail: noDecision}
		c.out = p.appendMembers(c.out)
		return
	case o.Decision.Allowed:
		c.out = append(c.out, `"status":200,`...)
	default:
		p := denial(&o.Decision, c.field)
		c.out = p.appendMembers(c.out)
		c.out = append(c.out, ',')
	}
	o.Decision.ID = c.decisionID()
	c.logDecision(&o.Decision, dims)
	c.out = appendDecision(c.out, &o.Decision)
}

// decide calls a method of the limiter within the deadline; without a decision
// it answers and returns false. label is the span's for the decision, "" for
// allowed or denied.
func (c *call) decide(method func(Limiter, context.Context, quota.Request) (quota.Decision, error), req quota.Request, label string) (quota.Decision, bool) {
	d, err := method(c.Limiter, c.within(c.Deadline), req)
	if err != nil {
		c.failed(err, "undecided", noDecision)
		return d, false
	}
	d.ID = c.decisionID()
	c.traceDecision(&d, label)
	return d, true
}

// failed answers a request for which the limiter returned an error. what is the log
// text; detail is sent to the caller, unless the error is a *quota.Invalid, which is
// sent itself.
func (c *call) failed(err error, what, detail string) {
	var bad *quota.Invalid
	if errors.As(err, &bad) {
		c.nameLimit(bad.Limit)
		c.refuse(invalid(bad.Fault, bad.Fields))
		return
	}
	c.logRefusal(what, err.Error())
	c.unavailable(detail)
}

// answer writes a decision under a status: alone, or as part of the problem
// document of a denial.
func (c *call) answer(d *quota.Decision, status int) { c.answerAs(d, status, false) }

// answerAs answers a report that was charged, or anything else.
func (c *call) answerAs(d *quota.Decision, status int, reported bool) {
	denied := status != http.StatusOK
	c.field = setFields(&c.fields, d, c.fieldInput(denied), c.field)
	if d.Replayed {
		c.fields.set("Idempotency-Replayed", "true")
	}
	contentType := typeJSON
	c.out = append(c.out[:0], '{')
	if denied {
		c.nameDenier(d)
		contentType = typeProblem
		p := denial(d, c.field)
		p.status = status
		c.out = p.appendMembers(c.out)
		c.out = append(c.out, ',')
	}
	if reported {
		c.out = appendReport(c.out, d)
	} else {
		c.out = appendDecision(c.out, d)
	}
	c.out = append(c.out, '}', '\n')
	c.write(status, contentType, c.out)
}
