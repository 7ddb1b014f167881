package top

import (
	"cmp"
	"slices"
)

const (
	// Counters is how many names a sketch holds at most. What has more than a thousandth of all
	// units is always among them.
	Counters = 1000
	// textBytes bounds the names of a sketch, so that with its counters it stays below 100 KB:
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
	slots []slot
	heap  []uint16 // places in slots, the smallest count first
	table []uint16 // by hash: a place in slots + 1, 0 for none; linear probing
	room  int      // for so many counters
	text  int      // bytes of all names

	floor int64 // the most that any name has that is not held
	lost  int64 // units whose names are not known
	total int64 // units of all names, lost ones included
}

// slot is the counter of one name. Its hash stands for it: of 64 bits under a secret seed, so that
// two names have the same once in 10^13 sketches, and nobody can choose them.
type slot struct {
	hash  uint64
	text  string // quota.CounterKey.AppendID
	count int64
	low   int64  // of count: certainly of this name
	at    uint16 // its place in the heap
}

func newSketch(counters int) *sketch {
	return &sketch{room: counters, table: make([]uint16, 2048)} // a power of two, at most half full
}

// add counts units of a name. text is called if it is not held yet.
func (k *sketch) add(hash uint64, units int64, text func() string) {
	k.total = plus(k.total, units)
	if i, held := k.find(hash); held {
		s := &k.slots[k.table[i]-1]
		s.count, s.low = plus(s.count, units), plus(s.low, units)
		k.down(int(s.at))
		return
	}
	n := slot{hash: hash, text: text(), low: units}
	if len(k.slots) == k.room {
		k.replace(n)
	} else {
		n.count = plus(k.floor, units)
		k.insert(n)
	}
	for k.text > textBytes {
		k.evict()
	}
}

// lose counts units of unknown names: at most units of each name, and all together.
func (k *sketch) lose(units, all int64) {
	k.lost, k.total = plus(k.lost, units), plus(k.total, all)
}

// replace has a newcomer take the place of the smallest counter. Whatever that was of had no more.
func (k *sketch) replace(n slot) {
	least := k.heap[0]
	s := &k.slots[least]
	k.floor, n.count = s.count, plus(s.count, n.low)
	k.text += len(n.text) - len(s.text)
	k.unlink(s.hash)
	*s = n
	i, _ := k.find(n.hash)
	k.table[i] = least + 1
	k.down(0)
}

// evict drops the smallest counter.
func (k *sketch) evict() {
	least := k.heap[0]
	k.floor = k.slots[least].count
	k.text -= len(k.slots[least].text)
	k.unlink(k.slots[least].hash)
	last := len(k.heap) - 1
	k.heap[0] = k.heap[last]
	k.heap = k.heap[:last]
	if last > 0 {
		k.slots[k.heap[0]].at = 0
		k.down(0)
	}
	if int(least) != last { // the last slot takes the empty place
		moved := k.slots[last]
		k.slots[least] = moved
		k.heap[moved.at] = least
		i, _ := k.find(moved.hash)
		k.table[i] = least + 1
	}
	k.slots[last] = slot{}
	k.slots = k.slots[:last]
}

func (k *sketch) insert(s slot) {
	i, _ := k.find(s.hash)
	s.at = uint16(len(k.heap))
	k.slots = append(k.slots, s)
	k.table[i] = uint16(len(k.slots))
	k.heap = append(k.heap, uint16(len(k.slots)-1))
	k.text += len(s.text)
	k.up(int(s.at))
}

// find returns the place in the table of a name, or where it would be.
func (k *sketch) find(hash uint64) (place int, held bool) {
	mask := len(k.table) - 1
	for i := int(hash) & mask; ; i = (i + 1) & mask {
		switch n := k.table[i]; {
		case n == 0:
			return i, false
		case k.slots[n-1].hash == hash:
			return i, true
		}
	}
}

// unlink empties the place of a name, and moves up those after it that it was in the way of.
func (k *sketch) unlink(hash uint64) {
	mask := len(k.table) - 1
	hole, _ := k.find(hash)
	for i := (hole + 1) & mask; k.table[i] != 0; i = (i + 1) & mask {
		home := int(k.slots[k.table[i]-1].hash) & mask
		if (i-home)&mask >= (i-hole)&mask { // its search passes the hole
			k.table[hole], hole = k.table[i], i
		}
	}
	k.table[hole] = 0
}

func (k *sketch) less(i, j int) bool { return k.slots[k.heap[i]].count < k.slots[k.heap[j]].count }

func (k *sketch) swap(i, j int) {
	k.heap[i], k.heap[j] = k.heap[j], k.heap[i]
	k.slots[k.heap[i]].at, k.slots[k.heap[j]].at = uint16(i), uint16(j)
}

func (k *sketch) up(i int) {
	for i > 0 && k.less(i, (i-1)/2) {
		k.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (k *sketch) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(k.heap); child++ {
			if k.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		k.swap(i, least)
		i = least
	}
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
		for i := range k.slots {
			s := &k.slots[i]
			sum := all[s.hash]
			if sum == nil {
				sum = &slot{hash: s.hash, text: s.text}
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
		if len(m.slots) == m.room || m.text+len(s.text) > textBytes {
			m.floor = s.count // of all that follow, none has more
			break
		}
		m.insert(*s)
	}
	return m
}

// plus adds without overflow; neither is negative.
func plus(a, b int64) int64 { return min(a+min(b, most), most) }
