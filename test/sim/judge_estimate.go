package sim

import (
	"slices"
	"sort"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// growth is a log of a usage counter: each time at which it was known to have grown, and its
// units then, both ascending.
type growth []grown

type grown struct {
	at    time.Duration
	units int64
}

// add notes what the counter was at a time; less than before is no growth.
func (g growth) add(at time.Duration, units int64) growth {
	if units <= g.units() {
		return g
	}
	return append(g, grown{at, units})
}

// units is what the counter is.
func (g growth) units() int64 {
	if len(g) == 0 {
		return 0
	}
	return g[len(g)-1].units
}

// by is what it was at a time.
func (g growth) by(at time.Duration) int64 {
	return g[:sort.Search(len(g), func(i int) bool { return g[i].at > at })].units()
}

// since is by how much it grew after a time: the perfect fade, if that is a window ago.
func (g growth) since(at time.Duration) int64 { return g.units() - g.by(at) }

// rounded is what an estimate may lack of a counter because times and units are rounded.
func rounded(units int64) int64 { return max(1, units/128) }

const (
	// keptPercent is how much of a counter may count for longer than a window after it was received.
	keptPercent = 10
	// forgets is how much sooner something may be over than the judge's clocks say, and
	// retains how much later: a bucket that is first received late begins late.
	forgets = 2 * time.Second
	retains = lateBy + time.Second
)

// receipts are what a process received of a counter: from its region, and with what others
// forwarded of it, which a process that receives from the region refuses. whole: some of it came
// without the messages before, so that it may have learned from its region when the counter grew.
type receipts struct {
	direct, all growth
	whole       bool
}

// follows reports whether a process has received all that the author of a message published before.
func (p *process) follows(m *message) bool {
	if m.usage.Origin != "" || m.usage.Chunk.Snapshot != 0 {
		return false
	}
	for _, q := range p.members.Others() {
		if q.Process == m.from.self && q.ReceivedAt != 0 {
			return m.usage.Number <= q.Complete+1
		}
	}
	return m.usage.Number == 1
}

func (p *process) received(t *truth, region int, c *truthCell) receipts {
	return p.known.received[cellKey{region, t.id, c.bucket, c.generation}]
}

// estimate bounds what a process must and may count of a region, however its ledger remembers how
// counters grew: what it received within a window counts, and nothing of a bucket that is over.
func (t *truth) estimate(p *process, region int) (least, upper int64) {
	now := p.region.w.now
	for _, c := range t.regions[region].cells {
		r, over := p.received(t, region, c), c.began+2*t.limit.Window
		units := r.all.units()
		// A ledger does not tell times apart within a slot, nor what came after the last one.
		if slot := t.limit.Window / 64; now < over-slot {
			faded := r.all.by(now - t.limit.Window + slot)
			if r.whole {
				faded = max(faded, c.log.by(now-t.limit.Window+2*slot)) // as its region knows
			}
			least += max(0, r.direct.units()-faded-rounded(units))
		}
		if before := now - retains; before < over {
			left := max(r.direct.since(before-t.limit.Window), r.all.since(before-t.limit.Window))
			upper += min(units, left+units*keptPercent/100+rounded(units))
		}
	}
	two := 2 * t.limit.Window
	return min(least, t.most(p, two-forgets)), min(upper, t.most(p, two+retains))
}

// units is L under a topology.
func (t *truth) units(top *region.Topology) int64 {
	return top.Policies[slices.IndexFunc(top.Policies, func(p quota.Policy) bool { return p.Name == t.policy.Name })].Limits[0].Units
}

// most is the cap on what a process counts of another region, and of each bucket: the largest L
// that was in force in it within a time.
func (t *truth) most(p *process, within time.Duration) int64 {
	most := t.units(p.region.topology)
	for _, f := range p.region.former {
		if f.until > max(p.born, p.region.w.now-within) {
			most = max(most, t.units(f.topology))
		}
	}
	return most
}

// published reports whether a process has received all that a region publishes of a bucket.
func (t *truth) published(p *process, s *simRegion, bucket int64) bool {
	units := int64(0)
	for _, c := range t.regions[s.place].cells {
		if c.bucket == bucket {
			units += p.received(t, s.place, c).all.units()
		}
	}
	return units >= t.units(s.topology)
}

// summed holds the sum over all regions to G-1: a region that counts on all the others
// admits no more than L, but for what it need not count yet, or not beyond the cap.
func (j *judge) summed(p *process, t *truth, d *quota.Decision) {
	if j.x.v.Members.Len() < len(j.w.regions) || t.policy.OnPartition != quota.FailShare && d.Mode == quota.ModeStale {
		return
	}
	if slices.ContainsFunc(j.hit, func(hit time.Duration) bool { return j.w.now-hit <= 2*j.excuse(t) }) {
		return
	}
	explained := j.x.lost
	for k := range t.regions {
		if least, _ := t.estimate(p, k); k != p.region.place {
			explained += max(0, t.regions[k].units-least)
		}
	}
	if over := t.all() - d.Limits[0].Limit.Units; over > explained {
		j.violated("G-1 sum", p, "%s: all regions hold %d, %d beyond L, of which %d are lost, not received yet or beyond the cap (estimates %v, lost %d, window %v)",
			t.tenant, t.all(), over, explained, j.x.estimates, j.x.lost, t.limit.Window)
	}
	j.w.stats.Summed++
}
