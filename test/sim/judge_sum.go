package sim

import (
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
)

// summed holds the sum over all regions to G-1: a region that counts on all the others
// admits no more than L, but for what it has not received and what their buckets have
// forgotten, both counted to the unit.
func (j *judge) summed(p *process, t *truth, d *quota.Decision, cost, store int64) {
	if t.model == nil || t.newest < j.w.now-j.excuse(t) {
		t.model = oracle.NewGlobal(len(j.w.regions), t.limit.WindowUS(), t.limit.BucketUS())
	}
	t.newest = j.w.now
	now := startUS + j.w.now.Microseconds()
	seen := t.model.Admit(oracle.Spend{Region: p.region.place, US: now, StoreUS: store, Units: cost}, 0)
	if j.x.v.Members().Len() < len(j.w.regions) || t.policy.OnPartition != quota.FailShare && d.Mode == quota.ModeStale {
		return
	}
	if slices.ContainsFunc(j.hit, func(hit time.Duration) bool { return j.w.now-hit <= 2*j.excuse(t) }) {
		return
	}
	unseen := int64(0)
	for k := range j.w.regions {
		if k != p.region.place {
			unseen += t.unreceived(p, k)
		}
	}
	units := d.Limits[0].Limit.Units
	if over := seen.Used - units; over > seen.Blurred()+unseen+j.x.lost {
		var used []int64
		for k := range j.w.regions {
			used = append(used, t.model.Used(k, now))
		}
		j.violated("G-1 sum", p, "%s: all regions hold %d of %d: %v, believed %v; of the %d beyond, %d were not received yet and %d have faded (%v); lost %d, window %v, buckets %v",
			t.tenant, seen.Used, units, used, j.x.estimates, over, unseen, seen.Blurred(), seen.Bias, j.x.lost, t.limit.Window, t.bucket())
	}
	j.w.stats.Summed++
}

// unreceived is what a region admitted in the window that a process has not received.
func (t *truth) unreceived(p *process, region int) (units int64) {
	u := &t.regions[region]
	for i := u.first; i < len(u.all); i++ {
		s := &u.all[i]
		key := cellKey{region, t.id, s.cell.bucket, s.cell.generation}
		if received := max(p.known.received[key], p.known.forwarded[key]); s.upTo > received {
			units += min(s.units, s.upTo-received)
		}
	}
	return units
}
