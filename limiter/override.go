package limiter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// Overrides has what tenants have in place of what the configuration says. Safe for concurrent use.
type Overrides interface {
	// Of returns the override of a tenant that is in force now, nil for none. By and Reason are not set. Where it has not
	// been read yet it waits for the store until ctx ends; its error, a *store.Error, is that it cannot be read.
	Of(ctx context.Context, tenant string) (*quota.Override, error)
	// Read is Of with By and Reason. It asks the store each time.
	Read(ctx context.Context, tenant string) (*quota.Override, error)
	// Known reports whether the tenant has an override, or had one that other regions may have yet, as far as this process knows.
	Known(tenant string) bool
}

// overridden is what a query has of its tenant's override.
type overridden struct {
	*quota.Override                // nil for none
	unread          error          // why it is not known
	suspended       []*quota.Limit // limits of no units, which deny without a store
	known           bool           // Overrides.Known, for an explanation
}

// takeOverride finds the override of the query's tenant.
func (q *query) takeOverride(ctx context.Context, all Overrides) {
	if all != nil && q.request.Charges == nil {
		q.override.Override, q.override.unread = all.Of(ctx, q.request.Tenant)
	}
}

// tenantOf is what the configuration, the request and the tenant's override say of it, of which the last that says something
// counts. Who has an override is listed.
func (q *query) tenantOf() (t quota.Tenant, listed bool) {
	r, req := q.rules, q.request
	if t, listed = r.Tenants[req.Tenant]; !listed && r.Default != nil {
		t = *r.Default
	}
	if req.PolicyDefault && req.Policy != "" {
		t.Policy = req.Policy
	}
	if policy := req.TenantPolicy; policy != "" {
		if req.PolicyValues != nil {
			policy = req.PolicyValues[policy]
		}
		if q.unclaimed = r.plans[policy] == nil; !q.unclaimed {
			t.Policy = policy
		}
	}
	o := q.override.Override
	if o == nil {
		return t, listed
	}
	if r.plans[o.Policy] != nil { // a reload may have dropped it
		t.Policy = o.Policy
	}
	if o.Enforcement != nil {
		t.Enforcement = o.Enforcement
	}
	return t, listed || t.Policy != ""
}

// applyUnits replaces the units of limits by those of the override, which are for the tenant's own policy.
func (q *query) applyUnits(own string, op store.Op) {
	o := q.override.Override
	if o == nil || len(o.Limits) == 0 || q.limits == nil || q.plan.policy.Name != own {
		return
	}
	q.limits, q.override.suspended = q.limits.under(o, q.rules.MaxOverride)
	if op == store.OpReport || op == store.OpRefund || q.hold.ticket != nil { // what was done is charged, under a limit of the configuration
		q.override.suspended = nil
	}
	if q.override.suspended != nil {
		q.call.Op, q.call.Cost = op, q.request.Cost
	}
}

// LimitOf is the limit by which to lend units of a partition now: that of the configuration, nil for none, with the units that
// the tenant's override gives it; 0 admit nothing. No decision goes by fewer. The error, a *store.Error, is that the override
// cannot be read.
func (l *Limiter) LimitOf(ctx context.Context, key *quota.CounterKey) (*quota.Limit, error) {
	q := query{rules: l.rules.Load(), request: &quota.Request{Tenant: key.Tenant}}
	limit := q.rules.limit(key.Policy, key.Limit)
	if limit == nil || key.Tenant == "" || q.rules.domains[key.Policy] != nil { // no override changes what unlisted tenants share, or a domain
		return limit, nil
	}
	q.takeOverride(ctx, l.overrides)
	if q.override.unread != nil {
		return nil, q.override.unread
	}
	o, under := q.override.Override, *limit
	if o == nil {
		return limit, nil
	}
	own, _ := q.tenantOf()
	switch under.Units = unitsUnder(limit, o, q.rules.MaxOverride); {
	case own.Policy == key.Policy:
	case o.Policy != "" && own.Policy == o.Policy:
		return limit, nil
	default: // it is a request's own where policy_from says so, and then the tenant's: loans are safe with the fewest units
		under.Units = min(under.Units, limit.Units)
	}
	return &under, nil
}

// unitsUnder is what an override gives a limit of its units, 0 for nothing: at most what the configuration allows, since it may
// come from before a reload, or from another region.
func unitsUnder(l *quota.Limit, o *quota.Override, times int64) int64 {
	if units, ok := o.Units(l.Name); ok {
		return min(units, l.MostUnder(times))
	}
	return l.Units
}

// under is the plan of the same limits with the units of an override, and those of its limits that admit nothing. The plan
// itself has the configured units of these: it is for what is charged all the same.
func (s *limitPlan) under(o *quota.Override, times int64) (p *limitPlan, suspended []*quota.Limit) {
	var array [quota.MaxLimits * binary.MaxVarintLen64]byte
	key, changed := array[:0], false
	for _, l := range s.limits {
		units := unitsUnder(l, o, times)
		if units == 0 {
			none := *l
			none.Units, none.Burst = 0, 0
			suspended = append(suspended, &none)
			units = l.Units
		}
		key, changed = binary.AppendVarint(key, units), changed || units != l.Units
	}
	if !changed {
		return s, suspended
	}
	if p = s.unders.get(key); p != nil {
		return p, suspended
	}
	limits := make([]*quota.Limit, len(s.limits))
	rest := key
	for i, l := range s.limits {
		units, n := binary.Varint(rest)
		rest = rest[n:]
		if limits[i] = l; units != l.Units {
			other := *l
			other.Units = units
			if len(other.Validate()) == 0 {
				limits[i] = &other
			}
		}
	}
	return s.unders.put(key, newLimitPlan(limits, s.newKeys)), suspended
}

// suspendedDecision denies by limits that admit nothing, whatever was used. It lists these alone: the store is not asked
// about the others.
func (q *query) suspendedDecision() quota.Decision {
	d := quota.Decision{Limits: make([]quota.LimitState, len(q.override.suspended))}
	for i, l := range q.override.suspended {
		d.Limits[i] = quota.LimitState{Limit: l, Denied: true, Reason: quota.ReasonSuspended}
	}
	return d
}

// unread decides a query whose override cannot be read as one that the store does not decide.
func (l *Limiter) unread(ctx context.Context, q *query) {
	if q.hold.ticket != nil && q.claimOfNothing(&q.out.Decision) {
		return
	}
	var e *store.Error
	if !errors.As(q.override.unread, &e) {
		e = &store.Error{Reason: quota.ReasonRedisDown, Err: q.override.unread}
	}
	q.out.Decision, q.out.Err = l.fallback(ctx, q, q.override.unread, e)
}

// overrideTimeout bounds the look-up of an override for an explanation.
const overrideTimeout = 500 * time.Millisecond

// explainOverride adds whose an override is and why, and whether there was another, for a request that asks for an explanation.
func (l *Limiter) explainOverride(ctx context.Context, q *query) {
	if !q.request.Explain || l.overrides == nil || q.request.Charges != nil {
		return
	}
	q.override.known = l.overrides.Known(q.request.Tenant)
	if q.override.Override == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, overrideTimeout)
	defer cancel()
	if o, err := l.overrides.Read(ctx, q.request.Tenant); err == nil && o != nil {
		q.override.Override = o
	}
}

// overrideTerms are those of an explanation; nil for none.
func (q *query) overrideTerms() *quota.OverrideTerms {
	v := q.override.Override
	if v == nil {
		return nil
	}
	t := &quota.OverrideTerms{Version: v.Version.String(), Changes: v.Describe(), By: v.By, Reason: v.Reason}
	if v.ExpiresUS > 0 {
		t.ExpiresAt = quota.TimeText(v.ExpiresUS)
	}
	for _, set := range v.Limits {
		if l := q.plan.policy.Limit(set.Name); l != nil && unitsUnder(l, v, q.rules.MaxOverride) < set.Units {
			t.Changes += fmt.Sprintf("; of %s the topology allows at most %d", set.Name, l.MostUnder(q.rules.MaxOverride))
		}
	}
	return t
}
