package judge

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/regiond/regiond/test/chaos/traffic"
	"github.com/regiond/regiond/test/oracle"
)

// Limit is a regional limit.
type Limit struct {
	Units  int64
	Window time.Duration
}

// Loss is a moment at which a region's store forgot what it had counted, or its clock
// went ahead: the one exception that is promised. A window across it may hold the limit
// once more.
type Loss struct {
	Region string
	// Span is when it happened: between an order and its confirmation.
	Span
}

// partition is the admissions of one tenant in one region by one store: Redis, or the
// memory of regiond while Redis is away.
type partition struct {
	region, tenant string
	local          bool
}

// Window insists that in no window does a region admit more of a tenant than a regional
// limit allows: by the store's own clock where that is known and was not stepped, and
// otherwise counting only what was certainly in the window. What regiond's memory admits
// while Redis is away is held against the limit by itself.
func Window(records []traffic.Record, class string, l Limit, losses []Loss, stepped bool) []string {
	o := objections{what: "window"}
	parts := map[partition][]*traffic.Record{}
	for i := range records {
		r := &records[i]
		if r.Class == class && r.Admitted() {
			p := partition{r.Region, r.Tenant, r.Answer.Basis == "local"}
			parts[p] = append(parts[p], r)
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(parts), func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.region, b.region), cmp.Compare(a.tenant, b.tenant))
	}) {
		for _, life := range lives(parts[p], p.region, losses) {
			worst, exact := certain(life, l.Window), false
			if !p.local && !stepped {
				worst, exact = byStore(life, l.Window), true
			}
			if worst > l.Units {
				o.add("%s admitted %d units of %s within %v, the limit is %d (local %v, by the store's clock %v)",
					p.region, worst, p.tenant, l.Window, l.Units, p.local, exact)
			}
		}
	}
	return o.all()
}

// lives parts records at the losses of their region. What was under way at one belongs
// to neither: it may have been counted before or after.
func lives(records []*traffic.Record, region string, losses []Loss) [][]*traffic.Record {
	var cuts []Span
	for _, l := range losses {
		if l.Region == region {
			cuts = append(cuts, l.Span)
		}
	}
	slices.SortFunc(cuts, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	all := make([][]*traffic.Record, len(cuts)+1)
	for _, r := range records {
		before := 0 // of how many losses it is the aftermath
		for before < len(cuts) && r.Call > cuts[before].To {
			before++
		}
		if before == len(cuts) || r.Return < cuts[before].From {
			all[before] = append(all[before], r)
		}
	}
	return all
}

// byStore is the most in any window of the store's clock.
func byStore(records []*traffic.Record, window time.Duration) (worst int64) {
	all := oracle.NewGlobal(window.Microseconds())
	for _, r := range slices.SortedFunc(slices.Values(records), func(a, b *traffic.Record) int {
		return cmp.Compare(a.Answer.Explain.StoreTimeUS, b.Answer.Explain.StoreTimeUS)
	}) {
		if at := r.Answer.Explain.StoreTimeUS; at != 0 {
			worst = max(worst, all.Admit(oracle.Spend{US: at, Units: r.Cost}, 0).Used)
		}
	}
	return worst
}

// certain is the most that was admitted within less than a window, whenever between
// call and answer each was.
func certain(records []*traffic.Record, window time.Duration) (worst int64) {
	sorted := slices.SortedFunc(slices.Values(records), func(a, b *traffic.Record) int { return cmp.Compare(a.Call, b.Call) })
	for i, first := range sorted {
		units := int64(0)
		for _, r := range sorted[i:] {
			if r.Call >= first.Call+window {
				break
			}
			if r.Return < first.Call+window {
				units += r.Cost
			}
		}
		worst = max(worst, units)
	}
	return worst
}
