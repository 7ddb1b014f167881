package traffic

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Classes of requests, each with a policy of its own in the world's topology. A tenant's
// id begins with its class.
const (
	Ledger = "ledger" // a global limit that is never reached, over a month: its totals are exact
	Hot    = "hot"    // a global limit that is asked for more than it has
	Edge   = "edge"   // a regional limit that is asked for more than it has
	Quiet  = "quiet"  // a global limit of which each region wants less than its part
	Dear   = "dear"   // as ledger, with many limits more: sent to overload Redis alone
	Strict = "strict" // a global limit with max_overshoot: 0%, asked for more than it has
	Tenth  = "tenth"  // the same with max_overshoot: 10%
	Month  = "month"  // a limit of a month with max_overshoot: 0%, used up before the run ends
	Hour   = "hour"   // a limit of an hour of the calendar with max_overshoot: 0%, likewise
)

// Tenants of each class.
const (
	LedgerTenants = 100
	HotTenants    = 1
	EdgeTenants   = 4
	QuietTenants  = 8
	DearTenants   = 20
	BoundTenants  = 1  // of strict, of tenth, and of month
	HourTenants   = 40 // by fours: one that each of three regions alone asks for, and one that all do
)

// QuietEvery is how often a region asks for a quiet tenant, whatever the profile.
const QuietEvery = 100 * time.Millisecond

// BoundRate is how many requests a second a region sends for strict and tenth together, MonthRate and HourRate how
// many for month and hour, and BoundTurn how long one region asks for none of strict or tenth. It then has a share to lend,
// and the next turn wants it back. HourTurn is how long one region alone asks for a tenant of hour that all ask for, and
// HourSpan how long tenants of hour are asked for.
const (
	BoundRate = 40
	MonthRate = 16
	HourRate  = 45
	BoundTurn = 3 * time.Second
	HourTurn  = time.Second
	HourSpan  = 6 * time.Second
)

// bounded is what a region asks of strict and tenth at a time: of both by turns, and while it has
// no demand for one all of the other.
func bounded(region, regions int, at time.Duration, random *rand.Rand) (class, tenant string, cost int64) {
	class = []string{Strict, Tenth}[random.IntN(2)]
	switch (int(at/BoundTurn) + region) % regions {
	case 0:
		class = Tenth
	case 1:
		class = Strict
	}
	if cost = 1; random.IntN(3) == 0 {
		cost = 3
	}
	return class, tenantOf(class, 0), cost
}

// HourTenant is the n-th tenant of hour: of the first three each region alone asks for one, and of the fourth all.
func HourTenant(n int) string { return tenantOf(Hour, n) }

// hourly is the tenant of hour that a region asks for at a time. After 2·HourSpan, and each HourSpan then, all are other ones, so
// that some units are always being lent. Of each four the last is for all regions in turns.
func hourly(region, regions int, at time.Duration) string {
	n := region
	if (int(at/HourTurn)+region)%regions == 0 {
		n = regions
	}
	return tenantOf(Hour, max(0, int(at/HourSpan)-1)*(regions+1)%HourTenants+n)
}

// Profile is the mix of traffic in a run.
type Profile struct {
	Name string
	// Share of the requests of each class, in percent; quiet comes on top.
	Ledger, Hot, Edge int
	// Regions is the share of each region, in percent.
	Regions []int
	// Burst sends the requests of a second in its first half. Half of the machine is the
	// load's own: what comes faster is late at the bare handler, too, and nothing can be judged.
	Burst bool
}

// Steady is even traffic, in all regions the same.
func Steady() Profile {
	return Profile{Name: "steady", Ledger: 50, Hot: 25, Edge: 25, Regions: []int{34, 33, 33}}
}

// HotTenant is one tenant that wants far more than its limit, everywhere at once.
func HotTenant() Profile {
	return Profile{Name: "hot tenant", Ledger: 15, Hot: 75, Edge: 10, Regions: []int{34, 33, 33}}
}

// Mixed is uneven: most of it in one region.
func Mixed() Profile {
	return Profile{Name: "mixed", Ledger: 40, Hot: 40, Edge: 20, Regions: []int{60, 30, 10}}
}

// Bursts is steady traffic that comes in fits.
func Bursts() Profile {
	p := Steady()
	p.Name, p.Burst = "burst", true
	return p
}

// draw is what one request of the profile asks for.
func (p *Profile) draw(random *rand.Rand) (class, tenant string, cost int64) {
	kind := random.IntN(p.Ledger + p.Hot + p.Edge)
	switch {
	case kind < p.Ledger:
		return Ledger, tenantOf(Ledger, random.IntN(LedgerTenants)), 1 + random.Int64N(5)
	case kind < p.Ledger+p.Hot:
		return Hot, tenantOf(Hot, random.IntN(HotTenants)), 1
	default:
		return Edge, tenantOf(Edge, random.IntN(EdgeTenants)), 1 + random.Int64N(2)
	}
}

// due is when the n-th request of a region is sent that has so many a second.
func (p *Profile) due(n int, rate float64) time.Duration {
	at := float64(n) / rate
	if p.Burst {
		second := float64(int(at))
		at = second + (at-second)/2
	}
	return time.Duration(at * float64(time.Second))
}

func tenantOf(class string, i int) string { return fmt.Sprintf("%s-%02d", class, i) }
