package ledger

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/regiond/regiond/quota"
)

// maxShapes bounds the different limits that live series may have, over all
// regions: a hundred policies with a dozen limits use a tenth of it, and an author
// that invents names cannot grow the table.
const maxShapes = 16_384

// shapeKey is what makes two series of one id the same.
type shapeKey struct {
	limit              string
	windowUS, bucketUS int64
}

// shape is a limit as totals are counted under it. Immutable, and kept by whoever
// still points to it after the table has given its number to another.
type shape struct {
	shapeKey
	order uint64 // of creation; no two have the same
}

// over reports whether a bucket no longer counts anything at nowUS, given its place
// on the same clock.
func (s *shape) over(place, nowUS int64) bool { return place+s.bucketUS+s.windowUS <= nowUS }

// counted is how much of a total counts at atUS: see quota.Counted.
func (s *shape) counted(units, place, atUS int64) int64 {
	return quota.Counted(units, place, s.bucketUS, s.windowUS, atUS)
}

// countedIn is how much of a total counts at atUS in a window that may be another than
// its own. Then nobody knows which of a bucket's units are in it.
func (s *shape) countedIn(windowUS, units, place, atUS int64) int64 {
	switch {
	case windowUS == s.windowUS:
		return s.counted(units, place, atUS)
	case place+s.bucketUS+windowUS <= atUS:
		return 0
	}
	return units
}

// window numbers the aligned windows: as many whole buckets as cover W.
func (s *shape) window(bucket int64) int64 {
	m := (s.windowUS + s.bucketUS - 1) / s.bucketUS
	return bucket / m
}

// shapes is the table of shapes in use, so that a series needs four bytes for its
// limit. at takes no lock: who holds a shard's lock may ask for the shapes of the
// series that live there.
type shapes struct {
	all [maxShapes]atomic.Pointer[shape] // 0 stands for none

	mu    sync.Mutex
	index map[shapeKey]uint32
	users []int // series of each shape
	free  []uint32
	made  uint64
}

func (t *shapes) at(i uint32) *shape { return t.all[i].Load() }

// acquire gives the number of a shape to one more series; 0 when the table is full.
func (t *shapes) acquire(k shapeKey) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.index[k]; ok {
		t.users[i]++
		return i
	}
	var i uint32
	if n := len(t.free); n > 0 {
		i = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		i = uint32(max(len(t.users), 1))
		if i == maxShapes {
			return 0
		}
		for len(t.users) <= int(i) {
			t.users = append(t.users, 0)
		}
	}
	k.limit = strings.Clone(k.limit) // it may be a piece of a whole message
	t.made++
	t.all[i].Store(&shape{shapeKey: k, order: t.made})
	t.index[k] = i
	t.users[i] = 1
	return i
}

// release says that a series is gone.
func (t *shapes) release(i uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users[i]--
	if t.users[i] > 0 {
		return
	}
	delete(t.index, t.all[i].Load().shapeKey)
	t.all[i].Store(nil)
	t.free = append(t.free, i)
}
