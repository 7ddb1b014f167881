package limiter

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// domainPlan is a domain, compiled: its policy, and the key plans of the limits that requests have
// named together. The plans are kept, since denials are remembered under them.
type domainPlan struct {
	policyPlan

	mu       sync.RWMutex
	together map[string]*limitPlan
}

// maxTogether bounds the plans that a domain keeps. Gateways have a few dozen routes, and each its own set of limits.
const maxTogether = 1 << 12

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
	}
	if len(ms) > 0 {
		return &quota.Invalid{Fault: quota.FaultInput, Fields: ms}
	}
	limits := make([]*quota.Limit, len(req.Charges))
	for i := range req.Charges {
		limits[i] = req.Charges[i].Limit
	}
	q.plan, q.limits, q.enforcement = &d.policyPlan, d.planOf(limits), d.policy.Enforcement
	if req.Observe {
		q.enforcement = quota.Observe
	}
	return q.planCall(op, r.values[req.Tenant] == nil, overflow)
}

// planOf returns the plan of limits that a request names, each under a key of its own.
func (d *domainPlan) planOf(limits []*quota.Limit) *limitPlan {
	var array [256]byte
	key := array[:0]
	for _, l := range limits {
		key = append(key, l.Name...)
		key = strconv.AppendInt(append(key, ' '), l.Units, 10) // one that came with a request has no number of its own
		key = strconv.AppendInt(append(key, '/'), l.WindowUS(), 10)
		key = append(key, ' ')
	}
	d.mu.RLock()
	p := d.together[string(key)]
	d.mu.RUnlock()
	if p != nil && slices.Equal(p.limits, limits) { // a reload replaces limits of the same name
		return p
	}
	p = &limitPlan{newKeys: store.NewChargesPlan, keys: store.NewChargesPlan(limits), limits: limits}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.together[string(key)]; known || len(d.together) < maxTogether {
		d.together[string(key)] = p
	}
	return p
}
