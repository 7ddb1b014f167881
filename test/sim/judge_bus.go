package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/test/meshtest"
)

func (k cellKey) compare(o cellKey) int {
	return cmp.Or(cmp.Compare(k.region, o.region), cmp.Compare(k.id, o.id), cmp.Compare(k.bucket, o.bucket), cmp.Compare(k.generation, o.generation))
}

// ofBucket names all generations of a counter's bucket.
func (k cellKey) ofBucket() cellKey {
	k.generation = 0
	return k
}

// compare holds what a process's ledger has of its peers to BUS-1 and BUS-2: nothing
// but the largest number that was received, of a bucket all of it up to the cap, and never more
// than was admitted. It walks over everything, so it is done now and then.
func (j *judge) compare(p *process) {
	held, received := map[cellKey]int64{}, map[cellKey]int64{} // by bucket
	holds := map[cellKey]bool{}
	for _, c := range meshtest.Cells(p.ceilings.Ledger()) {
		t := j.byID[c.ID]
		place := j.w.place(c.Region)
		if t == nil || place == p.region.place {
			continue
		}
		k := cellKey{place, c.ID, c.Bucket, c.Generation}
		held[k.ofBucket()] += c.Units
		holds[k] = true
		truth := t.find(place, c.Bucket, c.Generation)
		if truth == nil || c.Units > truth.most {
			j.violated("BUS-2 more than sent", p, "%s of %s, bucket %d, generation %d: it holds %d, and there is %+v", t.tenant, c.Region, c.Bucket, c.Generation, c.Units, truth)
		}
		if most := p.known.received[k].all.units(); c.Units > most {
			j.violated("BUS-1 join", p, "%s of %s, bucket %d, generation %d: it holds %d, and the most it received is %d", t.tenant, c.Region, c.Bucket, c.Generation, c.Units, most)
		}
		if all, most := held[k.ofBucket()], t.most(p, 2*t.limit.Window+retains); all > most {
			j.violated("BUS-1 cap", p, "%s of %s, bucket %d: it holds %d, above the cap of %d", t.tenant, c.Region, c.Bucket, all, most)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(p.known.received), cellKey.compare) { // the same violation first
		units, t := p.known.received[k].direct.units(), j.byID[k.id]
		if t == nil {
			continue
		}
		c := t.find(k.region, k.bucket, k.generation)
		if c == nil || c.began+2*t.limit.Window < j.w.now {
			// A process that was frozen receives late, and keeps counters for as long after. One whose store's
			// clock stepped back reads its counters for as long, and publishes them again.
			if !holds[k] && (c == nil || c.newest+5*t.limit.Window+keptAfter < j.w.now) {
				delete(p.known.received, k)
			}
			continue
		}
		steady := j.w.now-max(j.hit[k.region], p.known.parted[k.region]) > j.excuse(t)
		b := k.ofBucket()
		most := t.most(p, 2*t.limit.Window-forgets)
		if received[b] += units; steady && held[b] < min(received[b], most) {
			j.violated("BUS-1 join", p, "%s of %s, bucket %d: it received %d, the cap is %d, and it holds %d",
				t.tenant, j.w.regions[k.region].name, k.bucket, received[b], most, held[b])
		}
	}
}

// settleFor is how long after the last fault and the last admission all have received all.
const settleFor = 10 * time.Second

// settled holds the world to BUS-3, when nothing has gone wrong or been
// admitted for settleFor.
func (j *judge) settled() {
	if j.w.now-j.calm < settleFor || !j.w.well() {
		return
	}
	living := j.w.living()
	j.converged(living)
}

// held is what a process holds of other regions and will hold for a while: what ends
// within moments may be gone with one and be there with another.
func (j *judge) held(p *process, l *ledger.Ledger) map[cellKey]int64 {
	held := map[cellKey]int64{}
	for _, c := range meshtest.Cells(l) {
		k := cellKey{j.w.place(c.Region), c.ID, c.Bucket, c.Generation}
		t := j.byID[c.ID]
		if t == nil || k.region == p.region.place || c.WindowUS != t.limit.WindowUS() {
			continue
		}
		cell := t.find(k.region, c.Bucket, c.Generation)
		if cell != nil && cell.began+2*t.limit.Window > j.w.now+settleFor/2 {
			held[k] = c.Units
		}
	}
	return held
}

// converged: any two processes hold the same of a third region.
func (j *judge) converged(living []*process) {
	all := make([]map[cellKey]int64, len(living))
	for i, p := range living {
		all[i] = j.held(p, p.ceilings.Ledger())
	}
	for i, p := range living {
		for n, q := range living {
			for _, k := range slices.SortedFunc(maps.Keys(all[i]), cellKey.compare) {
				if k.region == q.region.place || j.w.now-j.hit[k.region] <= j.excuse(j.byID[k.id]) || all[n][k] == all[i][k] {
					continue
				}
				j.violated("BUS-3 convergence", p, "%s of %s, bucket %d, generation %d: it holds %d, and %s/%s holds %d; nothing has been wrong for %v",
					j.byID[k.id].tenant, j.w.regions[k.region].name, k.bucket, k.generation, all[i][k], q.self.Region, q.self.Instance, all[n][k], j.w.now-j.calm)
				return
			}
		}
	}
	j.w.stats.Converged++
}
