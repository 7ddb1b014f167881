package sim

import "time"

// forgot notes that all that a region's store counted is lost.
func (j *judge) forgot(s *simRegion) {
	for _, t := range j.order {
		for _, c := range t.regions[s.place].cells {
			c.lost = true
		}
	}
}

// remembers holds a process to what its store has lost, and to what it admitted while
// the store was away: it counts that against its region itself, like a peer's. It must
// have been there when it was admitted, and have seen since that the store began anew.
func (j *judge) remembers(p *process, t *truth) {
	s := p.region
	if len(s.processes) != 1 || s.store.byKey[t.key] == nil || s.store.away {
		return
	}
	least := int64(0)
	for _, c := range t.regions[s.place].cells {
		known := c.peak
		if c.generation == p.self.Boot {
			known = c.most
		}
		if p.born < c.began && (c.lost || c.generation == p.self.Boot) {
			least += max(0, t.counted(c, known, j.w.now+forgets)-1)
		}
	}
	if j.x.lost < least {
		j.violated("LOC-F lost", p, "%s: at least %d units that still count are lost to the store, and %d are reckoned with", t.tenant, least, j.x.lost)
	}
}

// forgets is how much sooner something may be over than the judge's clocks say, and
// retains how much later: a bucket that is first received late begins late.
const (
	forgets = 2 * time.Second
	retains = lateBy + time.Second
)

// atMost is what can still count of what a process received of a region.
func (t *truth) atMost(p *process, region int) int64 {
	units := int64(1)
	for _, c := range t.regions[region].cells {
		key := cellKey{region, t.id, c.bucket, c.generation}
		received := max(p.known.received[key], p.known.forwarded[key])
		units += t.counted(c, min(c.most, received), p.region.w.now-retains) + 1
	}
	return units
}
