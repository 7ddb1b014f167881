package limiter

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// resolveDomain is resolve for a request that names its limits.
func (q *query) resolveDomain(op store.Op, overflow *overflow) error {
	r, req := q.rules, q.request
	ms := req.Validate()
	d := r.domains[req.Policy]
	switch {
	case d == nil:
		ms = append(ms, quota.FieldError{Pointer: "/policy", Detail: fmt.Sprintf("%.80q is not a domain", req.Policy)})
	case len(req.Charges) == 0 || len(req.Charges) > quota.MaxTogether:
		ms = append(ms, quota.FieldError{Pointer: "/charges", Detail: fmt.Sprintf("one step has between 1 and %d charges", quota.MaxTogether)})
	case op == store.OpRefund:
		for i, c := range req.Charges {
			if !c.Limit.Refundable {
				ms = append(ms, quota.FieldError{Pointer: fmt.Sprint("/charges/", i), Detail: "is of a limit that takes nothing back"})
			}
		}
	}
	if len(ms) > 0 {
		return &quota.Invalid{Fault: quota.FaultInput, Fields: ms}
	}
	if op == store.OpReserve && !d.policy.Reserves() {
		return errNoHolds(req.Policy, "max_ttl in topology.yaml")
	}
	q.takeDomain(d)
	_, listed := r.Tenants[req.Tenant]
	return q.planCall(op, !listed && req.Tenant != d.tenant, overflow)
}

// takeDomain has the limits of the request's charges decide it.
func (q *query) takeDomain(d *policyPlan) {
	limits := make([]*quota.Limit, len(q.request.Charges))
	for i := range limits {
		limits[i] = q.request.Charges[i].Limit
	}
	q.plan, q.limits, q.enforcement = d, d.planOf(limits), d.policy.Enforcement
	if q.request.Observe {
		q.enforcement = quota.Observe
	}
}

// resolveDomainClaim makes the query of a claim on a reservation of a domain; d is nil where it is of none. The id names no
// limits and values: a request of descriptors may have as many as its caller likes.
func (q *query) resolveDomainClaim(d *policyPlan, c *quota.Claim, op store.Op) error {
	t := q.hold.ticket
	if d == nil || c.Of == nil || len(c.Of.Charges) == 0 || op != store.OpSettle || c.Of.Tenant != t.tenant || c.Of.Policy != t.policy {
		return refusedClaim(quota.FaultUnknown, "is of a rate limit domain: commit it over gRPC, with the descriptors that it was made for")
	}
	q.request = &quota.Request{Tenant: t.tenant, Policy: t.policy, Cost: c.Actual, Charges: c.Of.Charges}
	q.takeDomain(d)
	q.planClaim(op, t)
	return nil
}

// planOf returns the plan of limits that a request names, each under a key of its own.
func (p *policyPlan) planOf(limits []*quota.Limit) *limitPlan {
	var array [256]byte
	key := array[:0]
	for _, l := range limits {
		key = append(key, l.Name...)
		key = strconv.AppendInt(append(key, ' '), l.Units, 10) // one that came with a request has no number of its own
		key = strconv.AppendInt(append(key, '/'), l.WindowUS(), 10)
		key = append(key, ' ')
	}
	plan := p.plans.get(key)
	if plan == nil || !slices.Equal(plan.limits, limits) { // a reload replaces limits of the same name
		plan = p.plans.put(key, newLimitPlan(limits, store.NewChargesPlan))
	}
	return plan
}
