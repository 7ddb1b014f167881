package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// overrides is what a process of a StrictPlan knows of the overrides of tenants. It implements limiter.Overrides. How they travel is
// not part of the world: region/overrides proves that the newest one comes to all. Here it comes to each process at any time.
type overrides struct {
	p     *process
	known map[string]*quota.Override // nil: it is known that there is none
}

// keptOverride is what a region's store has had of a tenant since a time.
type keptOverride struct {
	at time.Duration
	*quota.Override
}

// Of implements limiter.Overrides. What it returns is in force: the judge takes note of that.
func (o *overrides) Of(_ context.Context, tenant string) (*quota.Override, error) {
	v, known := o.known[tenant]
	if !known {
		s := &o.p.region.store
		if s.away {
			return nil, &store.Error{Reason: quota.ReasonRedisDown, Err: errors.New("the override is not known yet")}
		}
		if n := len(s.overrides[tenant]); n > 0 {
			v = s.overrides[tenant][n-1].Override
		}
		o.known[tenant] = v
	}
	if !v.InForce(o.p.timeUS()) {
		v = nil
	}
	o.p.region.w.bound.inForce(tenant, v)
	return v, nil
}

// Read implements limiter.Overrides.
func (o *overrides) Read(ctx context.Context, tenant string) (*quota.Override, error) {
	return o.Of(ctx, tenant)
}

// Known implements limiter.Overrides.
func (o *overrides) Known(tenant string) bool { return o.known[tenant] != nil }

// take takes a version in, unless a newer one is known, and has the store keep it.
func (o *overrides) take(v *quota.Override) {
	if known := o.known[v.Tenant]; known != nil && known.Version.Compare(v.Version) >= 0 {
		v = known
	}
	o.known[v.Tenant] = v
	s := &o.p.region.store
	kept := s.overrides[v.Tenant]
	if n := len(kept); s.away || n > 0 && kept[n-1].Version.Compare(v.Version) >= 0 {
		return
	}
	if s.overrides == nil {
		s.overrides = map[string][]keptOverride{}
	}
	s.overrides[v.Tenant] = append(kept, keptOverride{o.p.region.w.now, v})
}

// edit has a tenant's override be another one: first in one process of a region, then in all others.
func (f *StrictPlan) edit(place int) {
	tenant := f.dice.IntN(len(f.tenants))
	units, ends := []int64{0, 3, 10, 30, 100, 300, -1}[f.dice.IntN(7)], f.span(30*time.Second)
	sent := []time.Duration{time.Second, 20 * time.Second}[f.dice.IntN(2)]
	p := f.regions[place].next()
	if p == nil {
		return
	}
	v := &quota.Override{Tenant: f.tenants[tenant], Deleted: units < 0}
	if known := p.overrides.known[v.Tenant]; known != nil {
		v.Version = known.Version
	}
	v.Version = v.Version.Next(p.timeUS(), p.self.Region)
	if !v.Deleted {
		v.Limits = []quota.OverrideLimit{{Name: "all", Units: units}}
		if f.dice.IntN(3) == 0 {
			v.ExpiresUS = p.timeUS() + ends.Microseconds()
		}
	}
	f.fault(p, "override of %s: %d units (−1: deleted), until %d", v.Tenant, units, v.ExpiresUS)
	p.overrides.take(v)
	for _, q := range f.living() {
		f.At(f.now+f.span(sent), func() { f.deliver(q, v) })
	}
}

// deliver has a version come to a process, which may be frozen until later.
func (f *StrictPlan) deliver(p *process, v *quota.Override) {
	switch {
	case p.gone:
	case p.frozen:
		f.At(f.now+time.Second, func() { f.deliver(p, v) })
	default:
		p.overrides.take(v)
		p.settle()
	}
}

// returned has a process that starts get what others know, after a while.
func (f *StrictPlan) returned(p *process) {
	f.At(f.now+f.span(4*time.Second), func() {
		for _, tenant := range f.tenants {
			for _, q := range f.living() {
				if v := q.overrides.known[tenant]; v != nil {
					f.deliver(p, v)
				}
			}
		}
	})
}

// tooCostly reports whether a request asks for more than an override leaves of a limit.
func (w *World) tooCostly(err error) bool {
	var e *quota.Invalid
	return w.overridden && errors.As(err, &e) && e.Fault == quota.FaultCost
}

// sighting is when some process went by some units of an override last, −1 for those of the configuration.
type sighting struct {
	units int64
	last  time.Duration
}

// inForce notes that a process goes by an override of a tenant now, nil for none.
func (j *boundJudge) inForce(tenant string, o *quota.Override) {
	units := int64(-1)
	if o != nil {
		units = o.Limits[0].Units
	}
	seen := j.seen[tenant]
	i := slices.IndexFunc(seen, func(s sighting) bool { return s.units == units })
	if i < 0 {
		i, seen = len(seen), append(seen, sighting{units: units})
	}
	seen[i].last, j.seen[tenant] = j.w.now, seen
}

// promised is what holds of a tenant now: the largest bound by which any process has gone for as long as what was used and lent
// under it may count.
func (j *boundJudge) promised(tenant string) promise {
	policy := j.w.o.policyOf(tenant).Name
	b := j.w.bounds.of(policy)
	if !j.w.overridden || b.units == 0 {
		return b
	}
	from := j.w.now - j.w.bounds.keepOf(policy)
	j.seen[tenant] = slices.DeleteFunc(j.seen[tenant], func(s sighting) bool { return s.last < from })
	b.units = 0
	for _, s := range j.seen[tenant] {
		b.units = max(b.units, j.w.bounds.under(policy, s.units))
	}
	return b
}

// under is B of a policy with the units of an override.
func (b *bounds) under(policy string, units int64) (most int64) {
	for _, all := range []map[string]promise{b.now, b.next} {
		if l := all[policy].limit; l != nil {
			other := *l
			if units >= 0 {
				other.Units = min(units, l.MostUnder(int64(maxOverride)))
			}
			bound, _ := other.Bound()
			most = max(most, bound)
		}
	}
	return most
}

// keepOf is how long what was used and lent under a policy may matter, by whichever clock.
func (b *bounds) keepOf(policy string) time.Duration {
	longest := int64(0)
	for _, all := range []map[string]promise{b.now, b.next} {
		if p, ok := all[policy]; ok {
			longest = max(longest, loan.TermsOf(p.window.Microseconds()).Holding(p.heldFor.Microseconds()).Keep())
		}
	}
	return time.Duration(longest+longest*pacePPM/1_000_000) * time.Microsecond
}

func (s sighting) String() string { return fmt.Sprintf("%d units until %v", s.units, s.last) }
