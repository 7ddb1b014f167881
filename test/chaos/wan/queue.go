package wan

import (
	"container/heap"
	"time"
)

// parcel is a packet on its way.
type parcel struct {
	due   time.Time
	order uint64 // of arrival: what is due together keeps its order
	to    int
	data  []byte
}

// parcels is a heap by due time.
type parcels struct {
	all   []parcel
	count uint64
}

// Len implements heap.Interface.
func (p *parcels) Len() int { return len(p.all) }

// Less implements heap.Interface: what is due first, and of those what came first.
func (p *parcels) Less(i, j int) bool {
	if p.all[i].due.Equal(p.all[j].due) {
		return p.all[i].order < p.all[j].order
	}
	return p.all[i].due.Before(p.all[j].due)
}

// Swap implements heap.Interface.
func (p *parcels) Swap(i, j int) { p.all[i], p.all[j] = p.all[j], p.all[i] }

// Push implements heap.Interface.
func (p *parcels) Push(x any) { p.all = append(p.all, x.(parcel)) }

// Pop implements heap.Interface.
func (p *parcels) Pop() any {
	last := p.all[len(p.all)-1]
	p.all = p.all[:len(p.all)-1]
	return last
}

// add takes a packet in and reports whether it is the first that is due now.
func (p *parcels) add(due time.Time, to int, data []byte) bool {
	p.count++
	heap.Push(p, parcel{due: due, order: p.count, to: to, data: data})
	return p.all[0].order == p.count
}

// next takes out the first packet if it is due. Otherwise it returns how long until one
// is: an hour when there is none.
func (p *parcels) next(now time.Time) (one parcel, wait time.Duration, ok bool) {
	if len(p.all) == 0 {
		return parcel{}, time.Hour, false
	}
	if wait = p.all[0].due.Sub(now); wait > 0 {
		return parcel{}, wait, false
	}
	return heap.Pop(p).(parcel), 0, true
}
