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

// checkBatch serves POST /v1/check:batch, and so on.
func (c *call) checkBatch() {
	c.batch(input.Checks, "/checks/", func(ctx context.Context, items []input.Item) []quota.Outcome {
		return c.Limiter.CheckBatch(ctx, requests(items))
	})
}

func (c *call) reserveBatch() {
	c.batch(input.Reservations, "/reservations/", func(ctx context.Context, items []input.Item) []quota.Outcome {
		return c.Limiter.Reserve(ctx, requests(items))
	})
}

func (c *call) settleBatch() {
	c.batch(input.Settlements, "/settlements/", func(ctx context.Context, items []input.Item) []quota.Outcome {
		return c.Limiter.Settle(ctx, c.claims(items))
	})
}

func (c *call) extendBatch() {
	c.batch(input.Extensions, "/extensions/", func(ctx context.Context, items []input.Item) []quota.Outcome {
		return c.Limiter.Extend(ctx, c.claims(items))
	})
}

func requests(items []input.Item) []quota.Request {
	all := make([]quota.Request, len(items))
	for i := range items {
		all[i] = items[i].Request
	}
	return all
}

func (c *call) claims(items []input.Item) []quota.Claim {
	all := make([]quota.Claim, len(items))
	for i := range items {
		all[i] = items[i].Claim
		all[i].May = c.caller.MayName
	}
	return all
}

// batch answers a body of elements that are decided together, as far as they could be decoded; each result has the place of its
// element, which pointers name below base. Rate limit fields are left out: they describe one decision.
func (c *call) batch(
	read func([]byte) ([]input.Item, []quota.FieldError), base string, decide func(context.Context, []input.Item) []quota.Outcome,
) {
	body, ok := c.readBody()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.Deadline)
	defer cancel()
	var items []input.Item
	var errs []quota.FieldError
	if !c.inTurn(ctx, func() { items, errs = read(body) }) {
		c.shed()
		return
	}
	query, wrong := input.Query(c.query, false)
	errs = append(errs, wrong...)
	if len(c.Header.Values(idempotencyHeader)) > 0 {
		errs = append(errs, quota.FieldError{Detail: "header Idempotency-Key belongs to one request and cannot come with a batch"})
	}
	if len(errs) > 0 {
		c.refuse(answer.Broken(quota.FaultInput, errs...))
		return
	}
	if !c.mayExplain(query.Explain) {
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
		outcomes = decide(ctx, decoded)
	}
	c.traceBatch(len(items), outcomes)
	// What was charged is answered, however late.
	c.inTurn(context.Background(), func() { c.write(http.StatusOK, typeJSON, c.results(items, base, outcomes)) })
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

// results renders the answer of a batch; outcomes are those of the items without errors.
func (c *call) results(items []input.Item, base string, outcomes []quota.Outcome) []byte {
	out := append(answer.NewObject(len(items)*answer.Small), `"results":[`...)
	room := answer.MaxBroken - len(items)*answer.MaxBrief // for problems
	for i := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '{')
		o := &quota.Outcome{Err: errors.New("the limiter returned too few outcomes")}
		if c.decodable(&items[i]) && len(outcomes) > 0 {
			o, outcomes = &outcomes[0], outcomes[1:]
		}
		before := len(out)
		if p := c.result(&items[i], base+strconv.Itoa(i), o); p != nil {
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

// outcome appends a decision of a batch.
func (c *call) outcome(out *answer.Object, d *quota.Decision, dims quota.Dimensions) {
	d.ID = c.decisionID()
	if d.Allowed || d.Settlement != nil {
		out.Number("status", http.StatusOK)
	} else {
		p := answer.Denial(d)
		out.Problem(&p)
	}
	if d.Settlement != nil {
		out.Settled(d)
		return
	}
	c.logDecision(d, dims)
	out.Decision(d)
}
