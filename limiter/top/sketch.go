package top

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

const (
	// Counters is how many names a sketch holds at most. What has more than a thousandth of all
	// units is always among them.
	Counters = 1000
	// textBytes bounds the names of a sketch, so that with its counters it stays below 200 KB:
	// 46 bytes each. Of longer ones it holds fewer.
	textBytes = 46_000
	// most is where counts stop: those of MaxPeers processes add up to what every reader of JSON has exactly.
	most = 1 << 44
)

// sketch is Space-Saving (A. Metwally, D. Agrawal, A. El Abbadi: Efficient Computation of
// Frequent and Top-k Elements in Data Streams, ICDT 2005), with weights. A newcomer takes
// the place of the smallest counter and begins where that ended, so no counter is ever too
// low, and each knows by how much it may be too high.
//
//	what is held       low ≤ its units ≤ count+lost
//	what is not          0 ≤ its units ≤ floor+lost
//	                     floor ≤ total ÷ counters that were held
//
// The last is their bound, N/m. It survives merging (P. K. Agarwal et al.: Mergeable Summaries,
// PODS 2012, §3).
type sketch struct {
	held map[uint64]*slot
	heap slots // the smallest count first
	room int   // for so many counters
	text int   // bytes of all names

	floor int64 // the most that any name has that is not held
	lost  int64 // units whose names are not known
	total int64 // units of all names, lost ones included
}

// slot is the counter of one name. Its hash stands for it: of 64 bits under a secret seed, so that
// two names have the same once in 10^13 sketches, and nobody can choose them.
type slot struct {
	hash  uint64
	name  name
	count int64
	low   int64 // of count: certainly of this name
	at    int   // its place in the heap
}

// name is what is counted: a limit, in the partition of a key of the store.
type name struct{ key, limit string }

func (n *name) size() int { return len(n.key) + len(n.limit) }

func newSketch(counters int) *sketch {
	return &sketch{room: counters, held: map[uint64]*slot{}}
}

// add counts units of a name, which it copies if that is not held yet.
func (k *sketch) add(hash uint64, units int64, of name) {
	k.total = plus(k.total, units)
	if s := k.held[hash]; s != nil {
		s.count, s.low = plus(s.count, units), plus(s.low, units)
		heap.Fix(&k.heap, s.at)
		return
	}
	of.key = strings.Clone(of.key) // it is a part of the text of all keys of a request
	var s *slot
	if len(k.heap) == k.room {
		s = k.evict()
	} else {
		s = &slot{}
	}
	*s = slot{hash: hash, name: of, count: plus(k.floor, units), low: units}
	k.insert(s)
	for k.text > textBytes {
		k.evict()
	}
}

// lose counts units of unknown names: at most units of each name, and all together.
func (k *sketch) lose(units, all int64) {
	k.lost, k.total = plus(k.lost, units), plus(k.total, all)
}

// evict drops the smallest counter: what it was of had no more than that.
func (k *sketch) evict() *slot {
	least := heap.Pop(&k.heap).(*slot)
	k.floor = least.count
	k.text -= least.name.size()
	delete(k.held, least.hash)
	return least
}

func (k *sketch) insert(s *slot) {
	k.held[s.hash] = s
	k.text += s.name.size()
	heap.Push(&k.heap, s)
}

// slots is a heap.Interface.
type slots []*slot

func (h slots) Len() int           { return len(h) }
func (h slots) Less(i, j int) bool { return h[i].count < h[j].count }

func (h slots) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *slots) Push(x any) {
	s := x.(*slot)
	s.at = len(*h)
	*h = append(*h, s)
}

// Pop implements heap.Interface.
func (h *slots) Pop() any {
	last := (*h)[len(*h)-1]
	*h = slices.Delete(*h, len(*h)-1, len(*h))
	return last
}

// merged is the sketch of what all of some sketches counted, which stay as they are. What one
// of them does not hold it may have counted up to its floor.
func merged(of ...*sketch) *sketch {
	if len(of) == 1 {
		return of[0]
	}
	floors := int64(0)
	all := map[uint64]*slot{}
	m := newSketch(of[0].room)
	for _, k := range of {
		floors = plus(floors, k.floor)
		m.lose(k.lost, k.total)
		for _, s := range k.heap {
			sum := all[s.hash]
			if sum == nil {
				sum = &slot{hash: s.hash, name: s.name}
				all[s.hash] = sum
			}
			// Above the floors, which are added below: so those that do not hold it count theirs.
			sum.count, sum.low = plus(sum.count, s.count-k.floor), plus(sum.low, s.low)
		}
	}
	largest := make([]*slot, 0, len(all))
	for _, s := range all {
		s.count = plus(s.count, floors)
		largest = append(largest, s)
	}
	slices.SortFunc(largest, func(a, b *slot) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.hash, b.hash))
	})
	m.floor = floors
	for _, s := range largest {
		if len(m.heap) == m.room || m.text+s.name.size() > textBytes {
			m.floor = s.count // of all that follow, none has more
			break
		}
		m.insert(s)
	}
	return m
}

// plus adds without overflow; neither is negative.
func plus(a, b int64) int64 { return min(a+min(b, most), most) }
