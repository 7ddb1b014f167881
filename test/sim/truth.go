package sim

import (
	"time"

	"github.com/regiond/regiond/quota"
)

// truth is what was admitted of one tenant, by the world's own count. Of the product it uses
// only decisions, and the counter in which a store counted them.
type truth struct {
	tenant  string
	policy  *quota.Policy
	limit   *quota.Limit
	id      uint64
	key     quota.CounterKey // of its counter in a store
	regions []use
	asked   []spend // every check of any region, in (t−3W, t]
	demand  int64   // units of these
	first   int     // of asked that still counts
	largest int64   // L, the largest in force anywhere
	decided int64   // L of the newest decision
}

// use is what one region admitted of it.
type use struct {
	all   []spend // in order
	first int     // the oldest inside the window
	units int64   // inside the window
	cells []*truthCell
}

// spend is one admission, and where the region's count of it stood then.
type spend struct {
	at    time.Duration
	units int64
	cell  *truthCell
	upTo  int64 // units of the cell, this admission included
	place int   // of the region, for a boundJudge
}

// truthCell is a counter as peers will receive of it.
type truthCell struct {
	bucket, generation int64
	began              time.Duration // true time of the bucket's start
	units              int64         // now, by the store
	most               int64         // ever
	log                growth        // by the store: less, once it has lost its latest writes and counted on
	newest             time.Duration
	lost               bool // the store forgot it
}

func newTruth(w *World, tenant string) *truth {
	p := w.o.policyOf(tenant)
	l := &p.Limits[0]
	t := &truth{tenant: tenant, policy: p, limit: l, regions: make([]use, len(w.regions)), largest: l.Units}
	t.key = quota.CounterKey{Tenant: tenant, Policy: p.Name, Limit: l.Name, Partition: "::", WindowUS: l.WindowUS()}
	t.id = w.key.CounterID(&t.key)
	return t
}

// age moves the window on to now, in whole microseconds as a store's clock counts them.
func (t *truth) age(now time.Duration) {
	for i := range t.regions {
		u := &t.regions[i]
		for u.first < len(u.all) && u.all[u.first].at.Truncate(time.Microsecond) <= now.Truncate(time.Microsecond)-t.limit.Window {
			u.units -= u.all[u.first].units
			u.first++
		}
		if u.first > 4096 && u.first > len(u.all)/2 {
			u.all = append(u.all[:0], u.all[u.first:]...)
			u.first = 0
		}
	}
	span := 3 * t.limit.Window
	for t.first < len(t.asked) && t.asked[t.first].at <= now-span {
		t.demand -= t.asked[t.first].units
		t.first++
	}
	if t.first > 4096 {
		t.asked = append(t.asked[:0], t.asked[t.first:]...)
		t.first = 0
	}
}

// ask takes down a check, whatever it gets.
func (t *truth) ask(now time.Duration, units int64) {
	t.asked = append(t.asked, spend{at: now, units: units})
	t.demand += units
}

// admit takes down an admission of a region in a bucket that began at a true time.
func (t *truth) admit(now time.Duration, region int, units, bucket, generation int64, began time.Duration) *truthCell {
	u := &t.regions[region]
	c := t.cell(now, u, bucket, generation, began)
	c.units += units
	c.most, c.newest = max(c.most, c.units), now
	u.all = append(u.all, spend{at: now, units: units, cell: c, upTo: c.units})
	u.units += units
	return c
}

func (t *truth) cell(now time.Duration, u *use, bucket, generation int64, began time.Duration) *truthCell {
	live := u.cells[:0]
	var found *truthCell
	for _, c := range u.cells {
		if c.bucket == bucket && c.generation == generation {
			found = c
		}
		if c == found || c.newest > now-6*t.limit.Window-2*keptAfter {
			live = append(live, c)
		}
	}
	u.cells = live
	if found == nil {
		found = &truthCell{bucket: bucket, generation: generation, began: began}
		u.cells = append(u.cells, found)
	}
	return found
}

// find is a region's cell, nil when there is none.
func (t *truth) find(region int, bucket, generation int64) *truthCell {
	for _, c := range t.regions[region].cells {
		if c.bucket == bucket && c.generation == generation {
			return c
		}
	}
	return nil
}

// all is what all regions admitted in the window.
func (t *truth) all() (units int64) {
	for i := range t.regions {
		units += t.regions[i].units
	}
	return units
}
