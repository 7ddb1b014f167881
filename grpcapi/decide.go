package grpcapi

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/quota"
)

// step is what is decided at once: cells of one tenant.
type step struct {
	cells []int // by their places in the request, the first of equal ones
	ask   quota.Ask
	over  bool            // a report is asked for after a peek, and charges more than the limit
	look  *quota.Decision // that peek; nil for none
}

// verdict is the decision about a request.
type verdict struct {
	cells   []cell
	refused bool
	apart   bool // the cells that are charged when admitted are of several tenants
	ignored bool // a limit that came with the request did not count
	mode    quota.Mode
	basis   quota.Basis
	reason  quota.Reason
}

// decide asks about all cells, and charges them as DESIGN.md says.
func (s *Server) decide(ctx context.Context, d *rls.Domain, v *verdict) {
	for i := range v.cells {
		if c := &v.cells[i]; c.never() {
			c.over = true
			c.state = quota.LimitState{Limit: c.rule.Limit, Denied: true, RetryAfter: c.rule.Limit.Window, ResetAfter: c.rule.Limit.Window}
		}
	}
	steps, checks, shadow := v.steps()
	v.refused = v.over()
	if !v.refused && len(steps) > 0 && len(checks) > 0 { // what refuses the request must do so before the others are charged
		s.ask(ctx, d, v, steps)
		steps = nil
		v.refused = v.over()
	}
	v.apart = !v.refused && len(checks) > 1
	if v.refused || v.apart { // no store decides about several tenants at once
		look := slices.Clone(checks)
		for i := range look {
			look[i].ask = quota.AskPeek
		}
		s.ask(ctx, d, v, look)
		if v.refused = v.over(); v.refused {
			checks = nil
		}
	}
	steps = slices.Concat(steps, checks, shadow)
	for len(steps) > 0 {
		steps = s.ask(ctx, d, v, steps)
		if v.noQuota() {
			break
		}
	}
	v.refused = v.over()
	for i := range v.cells { // what came of a cell came of its equals
		v.cells[i] = v.cells[v.cells[i].first]
	}
}

// over reports whether what is known of the cells refuses the request.
func (v *verdict) over() bool {
	return v.noQuota() || slices.ContainsFunc(v.cells, func(c cell) bool { return c.over && c.denies() })
}

// noQuota reports whether the request has cells of quota mode, and all of them are over.
func (v *verdict) noQuota() bool {
	some := false
	for i := range v.cells {
		if c := &v.cells[i]; c.ofQuota() && c.first == i {
			if !c.over {
				return false
			}
			some = true
		}
	}
	return some
}

// denial is a refusal as one decision: about the limit that refused, of several the one that takes longest to free, and
// without limits when none did.
func (v *verdict) denial() quota.Decision {
	d := quota.Decision{Basis: v.basis, Mode: v.mode, Reason: v.reason}
	for i := range v.cells {
		c := &v.cells[i]
		switch {
		case !v.refuses(c):
		case !c.undecided && (d.Limits == nil || c.state.RetryAfter > d.RetryAfter()):
			d.Tenant, d.Cost, d.Basis, d.Policy, d.Limits = c.tenant, c.cost, quota.BasisExact, c.policy, c.decidedBy()
		case d.Tenant == "":
			d.Tenant, d.Cost = c.tenant, c.cost
		}
	}
	return d
}

// decidedBy are the states of the limits that decided a cell.
func (c *cell) decidedBy() []quota.LimitState {
	switch {
	case c.claim != nil:
		return c.states
	case c.state.Limit != nil:
		return []quota.LimitState{c.state}
	}
	return nil
}

// refuses reports whether the request is refused because of a cell, or of others in quota mode with it.
func (v *verdict) refuses(c *cell) bool {
	return c.over && (c.denies() || c.ofQuota() && v.noQuota())
}

// steps puts the cells together that can be decided at once: checks are those that are charged when the request is admitted,
// shadow those that are charged whatever becomes of it.
func (v *verdict) steps() (others, checks, shadow []step) {
	for i := range v.cells {
		c := &v.cells[i]
		if !c.counted() || c.first != i {
			continue
		}
		own := step{ask: c.ask, cells: []int{i}}
		if c.never() {
			own.ask = quota.AskPeek
		}
		to := &others
		switch {
		case own.ask == quota.AskCheck && c.rule.Shadow:
			to = &shadow
		case own.ask == quota.AskCheck:
			to = &checks
		}
		at := -1
		if own.ask != quota.AskReport && c.claim == nil && !c.rule.Shadow && !c.never() {
			at = slices.IndexFunc(*to, func(o step) bool {
				first := &v.cells[o.cells[0]]
				return o.ask == own.ask && first.tenant == c.tenant && first.claim == nil && !first.rule.Shadow && !first.never()
			})
		}
		if at >= 0 {
			(*to)[at].cells = append((*to)[at].cells, i)
			continue
		}
		*to = append(*to, own)
	}
	return others, checks, shadow
}

// ask puts the steps to the limiter, and returns those that are to be asked again: a step that only limits of quota mode
// refused, without these, while there is another limit of quota mode with room.
func (s *Server) ask(ctx context.Context, d *rls.Domain, v *verdict, steps []step) (again []step) {
	qs := make([]quota.Question, 0, 2*len(steps))
	for i := range steps {
		o := &steps[i]
		q := v.question(d, o)
		if o.ask == quota.AskReport { // only what is asked before shows whether it exceeds the limit
			if first := &v.cells[o.cells[0]]; first.claim != nil || first.cost <= first.rule.Limit.Units {
				q.Ask = quota.AskPeek
				qs = append(qs, q)
				q.Ask = quota.AskReport
			} else {
				o.over = true
			}
		}
		qs = append(qs, q)
	}
	outcomes := s.Limiter.Decide(ctx, qs)
	for i := range outcomes {
		if qs[i].Charges == nil {
			tooCostly(&outcomes[i])
		}
	}
	for i := range steps {
		o := &steps[i]
		if o.ask == quota.AskReport && !o.over {
			o.look = &outcomes[0].Decision
			o.over = outcomes[0].Err != nil || v.cells[o.cells[0]].refusedBy(o.look)
			outcomes = outcomes[1:]
		}
		if rest := s.read(d, v, o, &outcomes[0]); len(rest) > 0 {
			again = append(again, step{cells: rest, ask: o.ask})
		}
		outcomes = outcomes[1:]
	}
	return again
}

// refusedBy reports whether a look refuses the cell: where its tenant's policy only observes, no limit of that does.
func (c *cell) refusedBy(d *quota.Decision) bool {
	if c.claim != nil {
		return !d.Allowed
	}
	return d.TurnedAway() || slices.ContainsFunc(d.Limits, func(s quota.LimitState) bool { return s.Denied })
}

func (v *verdict) question(d *rls.Domain, o *step) quota.Question {
	first := &v.cells[o.cells[0]]
	if first.claim != nil {
		q := quota.Question{Ask: o.ask, Request: *first.claim}
		q.Cost = first.cost
		return q
	}
	q := quota.Question{Ask: o.ask, Request: quota.Request{
		Tenant: first.tenant, Policy: d.Policy().Name, Observe: first.rule.Shadow, Charges: make([]quota.Charge, len(o.cells)),
	}}
	for n, i := range o.cells {
		c := &v.cells[i]
		q.Charges[n] = quota.Charge{Limit: c.rule.Limit, Dimensions: c.dims, Cost: c.cost}
		if c.never() {
			q.Charges[n].Cost = 1
		}
	}
	return q
}

// unknownWait is how long a caller waits where nothing is known of a limit.
const unknownWait = time.Second

// read takes in the outcome of a step, and returns the cells to ask again.
func (s *Server) read(d *rls.Domain, v *verdict, o *step, outcome *quota.Outcome) (again []int) {
	got := &outcome.Decision
	if v.cells[o.cells[0]].claim != nil {
		s.readClaim(d, v, o, outcome)
		return nil
	}
	if outcome.Err != nil {
		s.refusals.Warn("a descriptor could not be decided", "domain", d.Name, "error", outcome.Err)
		*got = quota.Decision{Allowed: d.Policy().OnStoreLoss == quota.FailOpen, Basis: quota.BasisClosed}
	}
	v.note(got)
	quotaOnly := true
	for n, i := range o.cells {
		c := &v.cells[i]
		c.state, c.undecided = quota.LimitState{Limit: c.rule.Limit}, got.TurnedAway()
		switch {
		case n < len(got.Limits):
			c.state = got.Limits[n]
		case !got.Allowed:
			c.state.RetryAfter = unknownWait
		}
		switch {
		case c.never():
			c.state.RetryAfter = c.rule.Limit.Window
		case o.ask == quota.AskReport:
			c.over = o.over || got.TurnedAway()
			if c.over {
				c.state.RetryAfter = max(c.state.RetryAfter, c.state.ResetAfter)
			}
		case got.WouldDeny:
			c.over = true
		case got.Allowed && o.ask == quota.AskCheck:
		case len(got.Limits) == 0:
			c.over = !got.Allowed
		default:
			c.over = c.state.Denied
		}
		c.state.Denied = c.over
		if c.over && !c.rule.Quota {
			quotaOnly = false
		}
		if !c.over {
			again = append(again, i)
		}
	}
	if got.Allowed || got.TurnedAway() || o.ask != quota.AskCheck || !quotaOnly || len(again) == len(o.cells) {
		return nil
	}
	return again
}

// tooCostly makes a decision of a cost that no limit of a tenant's policy can ever admit.
func tooCostly(outcome *quota.Outcome) {
	var bad *quota.Invalid
	if !errors.As(outcome.Err, &bad) || bad.Fault != quota.FaultCost {
		return
	}
	wait := bad.Limit.Window // as of a rate_limit that the cost is above
	if c, now := bad.Limit.Calendar, time.Now().UnixMicro(); c != nil {
		wait = time.Duration(c.At(now).End-now) * time.Microsecond
	}
	*outcome = quota.Outcome{Decision: quota.Decision{
		Allowed: bad.Observed, WouldDeny: bad.Observed, Policy: bad.Policy,
		Limits: []quota.LimitState{{Limit: bad.Limit, Denied: true, RetryAfter: wait, ResetAfter: wait}},
	}}
}

// refuseAs makes of a report, which charges whatever is left, the refusal that the look before it is: by the same limits, and until
// nothing is used of them, which is an upper bound. What is suspended stays that.
func refuseAs(got, look *quota.Decision) {
	if slices.ContainsFunc(look.Limits, func(s quota.LimitState) bool { return s.Reason == quota.ReasonSuspended }) {
		*got = *look
		return
	}
	for i := range look.Limits {
		at := slices.IndexFunc(got.Limits, func(s quota.LimitState) bool { return s.Limit.Name == look.Limits[i].Limit.Name })
		if at >= 0 && look.Limits[i].Denied {
			s := &got.Limits[at]
			s.Denied, s.RetryAfter = true, max(s.RetryAfter, s.ResetAfter)
		}
	}
}

// readClaim takes in what the policy of a tenant decided about a cell.
func (s *Server) readClaim(d *rls.Domain, v *verdict, o *step, outcome *quota.Outcome) {
	c, got := &v.cells[o.cells[0]], &outcome.Decision
	if bad := (*quota.Invalid)(nil); outcome.Err != nil {
		s.refusals.Warn("a descriptor could not be decided by its tenant's policy", "domain", d.Name, "tenant", c.tenant, "error", outcome.Err)
		*got = quota.Decision{Basis: quota.BasisClosed}
		c.unserved = errors.As(outcome.Err, &bad)
	}
	if o.look != nil && o.over {
		refuseAs(got, o.look)
	}
	if got.WouldDeny { // such a limit refuses nothing, and nobody waits for it
		for i := range got.Limits {
			got.Limits[i].Denied, got.Limits[i].RetryAfter = false, 0
		}
	}
	v.note(got)
	c.state, c.states, c.policy, c.undecided = quota.LimitState{}, got.Limits, got.Policy, got.TurnedAway()
	if i := got.Headline(); i >= 0 {
		c.state = got.Limits[i]
	} else if !got.Allowed {
		c.state.RetryAfter = unknownWait
	}
	if c.over = !got.Allowed; o.ask == quota.AskReport {
		if c.over = c.over || o.over; c.over {
			c.state.RetryAfter = max(c.state.RetryAfter, c.state.ResetAfter)
		}
	}
}

// note keeps what the verdict rests on: the first decision that is degraded, or that refuses.
func (v *verdict) note(d *quota.Decision) {
	if v.reason == quota.ReasonNone && (d.Reason != quota.ReasonNone || !d.Allowed || v.basis == quota.BasisExact) {
		v.mode, v.basis, v.reason = max(v.mode, d.Mode), d.Basis, d.Reason
	}
}
