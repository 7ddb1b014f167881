package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/input"
	"github.com/regiond/regiond/quota"
)

// many serves POST /v1/check:batch, and so on: a body whose member has elements that are decided together, as far as they could be
// decoded. Each result has the place of its element. Rate limit fields are left out: they describe one decision.
func (op operation) many(member string) func(*call) {
	return func(c *call) {
		body, ok := c.readBody()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.Deadline)
		defer cancel()
		var items []input.Item
		var errs []quota.FieldError
		if !c.inTurn(ctx, func() { items, errs = input.Batch(body, member, op.read) }) {
			c.shed()
			return
		}
		query, wrong := input.Query(c.query, false)
		errs = append(errs, wrong...)
		if len(c.Header.Values(idempotencyHeader)) > 0 {
			errs = append(errs, quota.FieldError{Detail: "header Idempotency-Key belongs to one request and cannot come with a batch"})
		}
		if c.broken(errs) || !c.mayExplain(query.Explain) {
			return
		}
		decoded := make([]input.Item, 0, len(items))
		for i := range items {
			if c.decodable(&items[i]) {
				items[i].Request.Explain = query.Explain
				decoded = append(decoded, items[i])
			}
		}
		var outcomes []quota.Outcome
		if len(decoded) > 0 {
			outcomes = op.decide(ctx, c, decoded)
		}
		c.traceBatch(len(items), outcomes)
		// What was charged is answered, however late.
		c.inTurn(context.Background(), func() { c.write(http.StatusOK, typeJSON, c.results(&op, items, "/"+member+"/", outcomes)) })
	}
}

// decodable reports whether the limiter is asked about an item. Whose a claim is the limiter finds.
func (c *call) decodable(it *input.Item) bool {
	return len(it.Errs) == 0 && (it.Claim.Reservation != "" || c.caller.MayName(it.Request.Tenant))
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

// results renders the answer of a batch, with pointers below base; outcomes are those of the items without errors.
func (c *call) results(op *operation, items []input.Item, base string, outcomes []quota.Outcome) []byte {
	var out bytes.Buffer
	out.Grow(len(items) << 9) // most take a little less
	out.WriteString(`{"results":[`)
	room := answer.MaxBroken - len(items)*answer.MaxBrief // for problems
	for i := range items {
		o := &quota.Outcome{Err: errors.New("the limiter returned too few outcomes")}
		if c.decodable(&items[i]) && len(outcomes) > 0 {
			o, outcomes = &outcomes[0], outcomes[1:]
		}
		before := out.Len()
		p := c.result(&items[i], base+strconv.Itoa(i), o)
		if p == nil {
			o.Decision.ID = c.decisionID()
			b := op.body(c, &o.Decision, items[i].Request.Dimensions)
			b.Status = cmp.Or(b.Status, http.StatusOK)
			answer.Write(&out, b)
		} else if room > 0 {
			answer.Write(&out, p.Body())
			room -= out.Len() - before
		}
		if p != nil && room <= 0 {
			out.Truncate(before)
			answer.Write(&out, p.Brief())
		}
		out.Bytes()[out.Len()-1] = ',' // in place of the end of a line
	}
	out.Truncate(out.Len() - 1)
	out.WriteString("]}\n")
	return out.Bytes()
}

// result returns the problem of an element of a batch that has no decision, with pointers below base; else nil.
func (c *call) result(it *input.Item, base string, o *quota.Outcome) *answer.Problem {
	var bad *quota.Invalid
	var p answer.Problem
	switch {
	case len(it.Errs) > 0:
		p = answer.Broken(quota.FaultInput, it.Errs...)
	case !c.decodable(it):
		p = answer.Problem{Kind: answer.Forbidden, Detail: noTenant}
	case errors.As(o.Err, &bad):
		p = answer.Broken(bad.Fault, slices.Clone(bad.Fields)...)
		for k := range p.Errs {
			p.Errs[k].Pointer = base + p.Errs[k].Pointer
		}
	case o.Err != nil:
		c.logRefusal("undecided", o.Err.Error())
		p = answer.Problem{Kind: answer.Reduced, Detail: noDecision}
	default:
		return nil
	}
	return &p
}
