package ledger

import (
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

const (
	// maxHoldUS bounds for how long a gauge counts: no reservation ends later, but for one that is extended, and then there
	// is a newer gauge.
	maxHoldUS = int64(quota.MaxTTL / time.Microsecond)
	// lateGaugeUS is how much longer than any earlier one could count a gauge is kept, so that a late one does not come back.
	lateGaugeUS = 60_000_000
)

// gauge is a quota.Gauge of one region. Of those of one key the one with the largest sequence holds: the store numbers them,
// so it does not matter which process sends them, in what order and how often, nor whether clocks step. Each ends by our
// clock, without a message. Keys are not ordered, since a clock may have been set back between two: a gauge of a key that is
// lost stays until it ends, and of several the largest counts. They are of the same holds, or of holds that nobody frees any
// more.
type gauge struct {
	name            uint64 // as that of a peerCounter
	sequence, units int64
	ends            int64 // µs of our clock: from then on it counts nothing
	last            int64 // the latest end that the gauge of this key ever had
	sent, sentUnits int64 // of our own: sequence and units that were published, or came from a sibling
}

func (g *gauge) region() int           { return int(g.name & (MaxRegions - 1)) }
func (g *gauge) generation() int64     { return int64(g.name >> regionBits) }
func (g *gauge) over(nowUS int64) bool { return g.last+lateGaugeUS <= nowUS }

// published notes that others have the gauge up to a sequence.
func (g *gauge) published(sequence, units int64) {
	if sequence > g.sent {
		g.sent, g.sentUnits = sequence, units
	}
}

// unsent is what of the gauge was not published, at least 1 unless nothing is.
func (g *gauge) unsent() int64 {
	if g.sequence == g.sent {
		return 0
	}
	return max(1, g.units-g.sentUnits, g.sentUnits-g.units)
}

// all are the gauges of a series.
func (s *series) all() []gauge {
	if s.gauges == nil {
		return nil
	}
	return *s.gauges
}

// mergeGauge merges a gauge of a region into its series, and returns that which this has, nil where there is no room. news is
// whether it is this one. Of two that are alike the earlier end is nearer to the truth. The pointer is good until another is
// merged.
func (l *Ledger) mergeGauge(u *update, region int) (s *series, g *gauge, news bool) {
	p := l.open(u)
	if p == 0 {
		return nil, nil, false
	}
	s = u.sh.at(p)
	n := 0
	for i := range s.all() {
		switch o := &s.all()[i]; {
		case o.region() != region:
		case quota.SameKey(o.generation(), u.generation):
			g = o
		default:
			n++
		}
	}
	if g == nil {
		if !l.reserve(u, s, n) {
			return s, nil, false
		}
		if region == 0 && s.own == nil {
			s.own = &own{place: p}
		}
		all := append(s.all(), gauge{})
		s.gauges, g = &all, &all[len(all)-1]
	}
	ends := u.nowUS + min(u.gauge.LeftUS, maxHoldUS)
	if u.gauge.Sequence == g.sequence {
		g.ends = min(g.ends, ends)
	}
	if u.gauge.Sequence <= g.sequence {
		return s, g, false
	}
	g.name, g.sequence, g.units = uint64(u.generation)<<regionBits|uint64(region), u.gauge.Sequence, u.gauge.Units
	g.ends, g.last = ends, max(g.last, ends)
	return s, g, true
}

// foldGauge merges the gauge that came with a counter.
func (l *Ledger) foldGauge(f *fold) {
	f.excess += max(0, f.gauge.Units-f.most)
	s, g, news := l.mergeGauge(&f.update, f.region)
	switch {
	case g == nil || s.own == nil:
	case f.region != 0:
		if news && s.own.state != idle {
			l.enlist(f.sh, s.own, f.nowUS, true)
		}
	case !f.returned:
		g.published(f.gauge.Sequence, f.gauge.Units)
		f.sh.settle(s.own)
	case news:
		l.enlist(f.sh, s.own, f.nowUS, false)
	}
}

// appendGauge has a row of a series among those from the given one on carry a gauge of it, no more than most: the last of its
// key, since what was settled has to arrive before the hold is gone. Without one it appends the newest counter of the key
// again, or a row of no units. aheadUS is the region's clock minus ours.
func (s *series) appendGauge(rows []entry, from int, g *gauge, most, nowUS, aheadUS int64) []entry {
	at := len(rows) - 1
	for at >= from && !quota.SameKey(rows[at].generation, g.generation()) {
		at--
	}
	if at < from {
		at = len(rows)
		row := entry{limit: s.limit, id: s.id, bucket: (nowUS + aheadUS) / s.limit.windowUS, generation: g.generation(), growth: growth{0, guessed}}
		if s.limit.periods { // of no period
			row.bucket, row.ends, row.growth = 0, max(1, nowUS+aheadUS), growth{}
		}
		for i := 0; g.region() == 0 && i < len(s.own.counters); i++ {
			c := &s.own.counters[i]
			if quota.SameKey(c.generation, g.generation()) && !s.limit.over(c.began, nowUS) && (row.units == 0 || c.bucket > row.bucket) {
				row.bucket, row.ends, row.generation, row.units = c.bucket, c.endsOf(s.limit), c.generation, s.own.claim(c, most)
			}
		}
		rows = append(rows, row)
	}
	left := min(maxHoldUS, max(0, g.ends-nowUS)) // it may have changed since nowUS
	rows[at].gauge = wire.Gauge{Sequence: g.sequence, Units: min(g.units, most), LeftUS: left}
	return rows
}

// heldBy is how much of a partition open holds of a region have at atUS, whatever the window.
func (sh *shard) heldBy(id uint64, region int, atUS int64) (units int64) {
	for p := sh.first[id]; p != 0; p = sh.at(p).next {
		for _, g := range sh.at(p).all() {
			if g.region() == region && atUS < g.ends {
				units = max(units, g.units)
			}
		}
	}
	return units
}

// Held fills out with how many units of a partition the open reservations of each region hold at a moment of our monotonic
// clock, as far as is known. Estimates has them in what it gives.
func (l *Ledger) Held(id uint64, at time.Duration, out []int64) {
	sh := l.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for region := range out {
		out[region] = sh.heldBy(id, region, at.Microseconds())
	}
}
