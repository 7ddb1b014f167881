package judge

import (
	"slices"
	"time"
)

// Reservation is one as its holder knows it.
type Reservation struct {
	Region, Tenant string
	Amount         int64
	TTL            time.Duration
	Reserved       Span // it was asked for and answered
	Settled        *Settle
}

// Settle is how a reservation was settled; Span begins with the first call and ends with the answer that says what was charged.
type Settle struct {
	Region string
	Span
	Charged, Overrun int64
	Released         bool
}

// told is how much of what was charged the answer calls above the limit or no longer held.
func (s *Settle) told() int64 {
	if s.Released {
		return s.Overrun
	}
	return s.Charged
}

// Held insists that at no moment a window of a region has more of a tenant than the limit: units that were certainly settled in it,
// and are not told as more, and what is certainly held. It returns the most that there was.
func Held(all []Reservation, l Limit) (most int64, objects []string) {
	o := objections{what: "held"}
	type key struct{ region, tenant string }
	moments := map[key][]time.Duration{}
	for i := range all {
		r := &all[i]
		moments[key{r.Region, r.Tenant}] = append(moments[key{r.Region, r.Tenant}], r.Reserved.To)
		if s := r.Settled; s != nil {
			moments[key{s.Region, r.Tenant}] = append(moments[key{s.Region, r.Tenant}], s.To)
		}
	}
	for at, times := range moments {
		slices.Sort(times)
		for _, t := range slices.Compact(times) {
			units := int64(0)
			for i := range all {
				r := &all[i]
				if r.Tenant != at.tenant {
					continue
				}
				ends := r.Reserved.From + r.TTL
				if s := r.Settled; s != nil {
					ends = min(ends, s.From)
					if s.Region == at.region && s.To <= t && t < s.From+l.Window {
						units += s.Charged - s.told()
					}
				}
				if r.Region == at.region && r.Reserved.To <= t && t < ends {
					units += r.Amount
				}
			}
			if most = max(most, units); units > l.Units {
				o.add("%d units of %s are settled and held in %s at %v, the limit is %d", units, at.tenant, at.region, t, l.Units)
			}
		}
	}
	return most, o.all()
}
