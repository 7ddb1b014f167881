package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
)

// holding is a reservation that a caller has: units that count as used until it is settled or over.
type holding struct {
	id     string
	tenant string
	region *simRegion
	units  int64
	ends   time.Duration // in true time, by the fastest clock
	open   bool          // it counts
}

// Reserve asks one of a region's processes to hold units for so long, as Check does. It is nil if that is denied, or if
// nothing is held.
func (w *World) Reserve(place int, tenant string, units int64, ttl time.Duration) *holding {
	p := w.regions[place].next()
	if p == nil {
		return nil
	}
	w.stats.Checks++
	o := p.limiter.Reserve(context.Background(), []quota.Request{{Tenant: tenant, Cost: units, TTL: ttl, Reserve: true}})[0]
	if w.tooCostly(o.Err) {
		return nil
	}
	if o.Err != nil {
		panic(fmt.Sprintf("sim: a reserve of %d of %s: %v", units, tenant, o.Err)) // the world's own mistake
	}
	w.trace.answer(w.now, p, &o.Decision)
	var h *holding
	if o.Decision.Allowed {
		w.stats.Admitted += units
		h = &holding{id: o.Decision.Reservation.ID, tenant: tenant, region: p.region, units: units}
		w.bound.reserved(p, h, o.Decision.Reservation.ExpiresIn)
	}
	p.lending.folly(tenant)
	p.settle()
	return h
}

// Settle has one of a region's processes charge what a reservation has used.
func (w *World) Settle(place int, h *holding, actual int64) {
	p := w.regions[place].next()
	if p == nil {
		return
	}
	d, over := w.claimed(p, p.limiter.Settle(context.Background(), []quota.Claim{{Reservation: h.id, Actual: actual}}))
	if s := d.Settlement; !over && s != nil && !s.Pending {
		w.bound.settled(p, h, min(actual, h.units), s.Released)
	}
	p.settle()
}

// Extend has one of a region's processes keep a reservation for longer, and reports whether it did.
func (w *World) Extend(place int, h *holding, ttl time.Duration) bool {
	p := w.regions[place].next()
	if p == nil {
		return false
	}
	d, over := w.claimed(p, p.limiter.Extend(context.Background(), []quota.Claim{{Reservation: h.id, TTL: ttl}}))
	if !over && d.Allowed && h.open {
		w.bound.extended(h, d.Reservation.ExpiresIn)
	}
	p.settle()
	return !over && d.Allowed
}

// claimed is the answer to a claim; over: nothing was done, since the reservation is.
func (w *World) claimed(p *process, all []quota.Outcome) (d quota.Decision, over bool) {
	var e *quota.Invalid
	switch err := all[0].Err; {
	case errors.As(err, &e) && e.Fault == quota.FaultOver:
		return d, true
	case err != nil:
		panic(fmt.Sprintf("sim: a claim: %v", err)) // the world's own mistake
	}
	w.trace.answer(w.now, p, &all[0].Decision)
	return all[0].Decision, false
}

// reserved judges a reserve that was allowed, whose holds last for so long.
func (j *boundJudge) reserved(p *process, h *holding, lasts time.Duration) {
	t := j.window(h.tenant)
	if t == nil {
		return
	}
	t.holds, h.open = append(t.holds, h), true
	j.extended(h, lasts)
	j.judge(p, t)
}

// extended is that the holds of a reservation last for so long from now.
func (j *boundJudge) extended(h *holding, lasts time.Duration) {
	h.ends = j.w.now + max(0, lasts-lasts*pacePPM/1_000_000-unseen)
}

// settled judges a settle, of units that were held. What the caller is told was held no more does not count.
func (j *boundJudge) settled(p *process, h *holding, units int64, released bool) {
	t := j.window(h.tenant)
	if t == nil {
		return
	}
	if released {
		h.open = false
		t.add(spend{at: j.w.now, units: units, place: h.region.place})
		j.w.stats.Settled += units
	} else {
		j.w.stats.Told += units
	}
	if p.region == h.region {
		h.open = false // elsewhere it is still held
	}
	j.judge(p, t)
}

// ended forgets what a region holds of a tenant, "" for all: its store may have lost it, or its clock is ahead of when it ends.
func (j *boundJudge) ended(s *simRegion, tenant string) {
	for _, t := range j.order {
		for _, h := range t.holds {
			if h.region == s && (tenant == "" || tenant == h.tenant) {
				h.open = false
			}
		}
	}
}

// held is how many units open reservations hold.
func (t *trueWindow) held(now time.Duration) (units int64) {
	t.holds = slices.DeleteFunc(t.holds, func(h *holding) bool { return !h.open || h.ends <= now })
	for _, h := range t.holds {
		units += h.units
	}
	return units
}

// reserve has a caller of a StrictPlan reserve, extend and settle, in time or not.
func (f *StrictPlan) reserve(place, tenant int, units int64) {
	var p *quota.Policy
	for i := range f.regions[place].topology.Policies {
		if f.regions[place].topology.Policies[i].Name == f.o.Tenants[f.tenants[tenant]] {
			p = &f.regions[place].topology.Policies[i]
		}
	}
	most := p.MaxTTL
	draw := func(most time.Duration) time.Duration {
		return time.Duration(f.asking.Int64N(int64(most))) + time.Millisecond
	}
	ttl := draw(most * 6 / 5)
	if f.asking.IntN(2) == 0 {
		ttl = most
	}
	units = min(units*(1+f.asking.Int64N(max(1, f.units[tenant]/20))), p.Limits[0].Units) // which may be fewer
	actual, home := f.asking.Int64N(units+units/4+1), f.asking.IntN(10)
	other, uses, extends, settles := f.asking.IntN(len(f.regions)), draw(ttl), 0, f.asking.IntN(10)
	if f.asking.IntN(5) == 0 {
		extends, uses = 3, draw(ttl*5/4)
	}
	h := f.Reserve(place, f.tenants[tenant], units, ttl)
	if h == nil {
		return
	}
	var use func(left int)
	use = func(left int) {
		f.At(f.now+uses, func() {
			switch {
			case left > 0 && f.Extend(place, h, ttl):
				use(left - 1)
			case settles == 0: // the caller is gone
			case home == 0:
				f.Settle(other, h, actual)
			default:
				f.Settle(place, h, actual)
			}
		})
	}
	use(extends)
}
