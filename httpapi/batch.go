package httpapi

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/regiond/regiond/quota"
)

// batch serves POST /v1/check:batch. The good checks are asked together, and
// each result stands where its check stood. Rate limit fields are left out:
// they describe one decision.
func (c *call) batch() {
	if !c.readBody() {
		return
	}
	items, mistakes := c.decode.batch(c.in)
	q, wrong := parseQuery(c.r.URL.RawQuery, false)
	mistakes = append(mistakes, wrong...)
	if len(c.r.Header[idempotencyHeader]) > 0 {
		mistakes = append(mistakes, quota.FieldError{Detail: "header Idempotency-Key belongs to one check and cannot come with a batch"})
	}
	if len(mistakes) > 0 {
		c.refuse(invalid(quota.FaultInput, mistakes))
		return
	}
	outcomes := c.ask(items, q.explain)
	c.traceBatch(items, outcomes)
	c.out = append(c.out[:0], `{"results":[`...)
	next := 0
	for i := range items {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, '{')
		switch {
		case len(items[i].mistakes) > 0:
			p := invalid(quota.FaultInput, items[i].mistakes)
			c.out = p.appendMembers(c.out)
		case next >= len(outcomes):
			c.out = noOutcome().appendMembers(c.out)
		default:
			c.result(&outcomes[next], i, items[i].request.Dimensions)
			next++
		}
		c.out = append(c.out, '}')
	}
	c.out = append(c.out, "]}\n"...)
	c.write(http.StatusOK, c.json, c.out)
}

// ask returns the outcomes of the items that have no mistake.
func (c *call) ask(items []item, explain bool) []quota.Outcome {
	good := make([]quota.Request, 0, len(items))
	for i := range items {
		if len(items[i].mistakes) == 0 {
			items[i].request.Explain = explain
			good = append(good, items[i].request)
		}
	}
	if len(good) == 0 {
		return nil
	}
	ctx := c.deadline()
	defer ctx.end()
	return c.Limiter.CheckBatch(ctx, good)
}

// result appends one outcome, with pointers into the batch.
func (c *call) result(o *quota.Outcome, i int, dims quota.Dimensions) {
	var bad *quota.Invalid
	switch {
	case errors.As(o.Err, &bad):
		p := invalid(bad.Fault, merge(nil, bad.Fields, "/checks/"+strconv.Itoa(i)))
		c.out = p.appendMembers(c.out)
	case o.Err != nil:
		c.logRefusal("undecided", o.Err.Error())
		c.out = noOutcome().appendMembers(c.out)
	case o.Decision.Allowed:
		c.logDecision(&o.Decision, dims)
		c.out = append(c.out, `"status":200,`...)
		c.out = appendDecision(c.out, &o.Decision)
	default:
		c.logDecision(&o.Decision, dims)
		p := refusal(&o.Decision, c.field)
		c.out = appendRefusal(c.out, &o.Decision, &p)
		c.out = append(c.out, ',')
		c.out = appendDecision(c.out, &o.Decision)
	}
}

func noOutcome() *problem {
	return &problem{kind: kindReduced, detail: "No decision could be made at the moment. Retry later."}
}
