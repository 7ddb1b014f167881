package ledger

import (
	"sync"
	"sync/atomic"
)

// shard is the series whose ids begin with the same six bits.
type shard struct {
	mu       sync.Mutex
	index    map[uint64]uint32 // id → first series
	used     atomic.Int32      // how many series; 0 saves whoever walks over all shards the lock
	listed   *atomic.Int64     // of all shards: how many series are in the outbox
	series   slab[series]
	cells    slab[cell]
	owns     slab[own]
	ownCells slab[ownCell]
	// first and last are the ends of the outbox, in owns: see outbox.go.
	first, last uint32
	// runs and outgoing are room for finish and take to work in.
	runs     []run
	outgoing []*ownCell
}

// find gives the series of an id under a shape, or 0. The shard is locked, here
// and in all that follows.
func (l *Ledger) find(sh *shard, id uint64, k *shapeKey) uint32 {
	for i := sh.index[id]; i != 0; i = sh.series.at(i).next {
		if l.shapes.at(sh.series.at(i).shape).shapeKey == *k {
			return i
		}
	}
	return 0
}

// open finds or makes a series; 0 when there is no room for another.
func (l *Ledger) open(sh *shard, id uint64, k *shapeKey) uint32 {
	if i := l.find(sh, id, k); i != 0 {
		return i
	}
	if l.series.Add(1) > l.maxSeries {
		l.series.Add(-1)
		return 0
	}
	sp := l.shapes.acquire(*k)
	if sp == 0 {
		l.series.Add(-1)
		return 0
	}
	i, s := sh.series.alloc()
	*s = series{id: id, shape: sp, next: sh.index[id]}
	sh.index[id] = i
	sh.used.Add(1)
	return i
}

// close frees a series without cells.
func (l *Ledger) close(sh *shard, i uint32) {
	s := sh.series.at(i)
	switch first := sh.index[s.id]; {
	case first != i:
		before := sh.series.at(first)
		for before.next != i {
			before = sh.series.at(before.next)
		}
		before.next = s.next
	case s.next != 0:
		sh.index[s.id] = s.next
	default:
		delete(sh.index, s.id)
	}
	l.shapes.release(s.shape)
	sh.series.release(i)
	sh.used.Add(-1)
	l.series.Add(-1)
}

// room takes the room of one more total, which freed gives back.
func (l *Ledger) room() bool {
	if l.cells.Add(1) > l.maxSeries*cellsPerSeries {
		l.cells.Add(-1)
		return false
	}
	return true
}

// freed says that so many totals are gone.
func (l *Ledger) freed(n int) { l.cells.Add(-int64(n)) }
