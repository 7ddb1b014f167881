package wan

import (
	"slices"
	"sort"
	"time"
)

// parcel is a packet on its way.
type parcel struct {
	due  time.Time
	to   int
	data []byte
}

// parcels are sorted by due time, and by arrival where times are equal.
type parcels struct{ all []parcel }

// add inserts a packet and reports whether it is the next one that is due.
func (p *parcels) add(due time.Time, to int, data []byte) bool {
	i := sort.Search(len(p.all), func(i int) bool { return p.all[i].due.After(due) })
	p.all = slices.Insert(p.all, i, parcel{due, to, data})
	return i == 0
}

// next removes and returns the first packet if it is due. Otherwise it returns how long
// until one is: an hour if there is none.
func (p *parcels) next(now time.Time) (one parcel, wait time.Duration, ok bool) {
	if len(p.all) == 0 {
		return parcel{}, time.Hour, false
	}
	if wait = p.all[0].due.Sub(now); wait > 0 {
		return parcel{}, wait, false
	}
	one, p.all = p.all[0], p.all[1:]
	return one, 0, true
}
