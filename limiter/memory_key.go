package limiter

import (
	"sort"

	"github.com/regiond/regiond/quota"
)

// memoryKey is what MemoryStore keeps under one key: the Go counterpart of the states
// in lua/decide.lua, on the arithmetic of quota.
type memoryKey struct {
	kind    byte
	life    int64 // MemoryStore.life when it was created
	newest  int64 // the newest stamp
	offset  int64 // of the partition's clock, kept with newest
	expires int64 // TIME after which no answer depends on it
	clock   quota.PartitionClock

	log     []admission   // 'l'
	buckets quota.Buckets // 'w', as of the newest stamp
	level   quota.Level   // 'g', as of the newest stamp
	window  int64         // µs; the W that buckets or level were written under

	// The same at clock. They are kept only when something is charged: TIME may
	// yet go back behind what a denial or a peek has seen.
	bucketsNow quota.Buckets
	levelNow   quota.Level
}

// admission is one entry of a log.
type admission struct {
	us   int64 // stamp
	sum  int64 // units admitted up to and including it
	cost int64
}

func newMemoryKey(plan *plannedKey) *memoryKey {
	return &memoryKey{kind: plan.kind, window: plan.limits[0].WindowUS()}
}

// at sets the partition's clock from TIME and works out the counters there.
func (k *memoryKey) at(plan *plannedKey, time int64) {
	l := plan.limits[0]
	k.clock = quota.PartitionClockAt(time, k.newest, k.offset, k.empties(plan))
	switch k.kind {
	case 'w':
		if k.window == l.WindowUS() {
			k.bucketsNow = k.buckets.At(k.clock.Now, k.window)
		} else {
			k.bucketsNow = k.buckets.Reshape(k.clock.Now, k.window, l.WindowUS())
		}
	case 'g':
		k.levelNow = k.level.Reshape(k.window, l.WindowUS(), l.Capacity()).Drain(k.clock.Now-k.newest, l.Units, l.WindowUS())
	}
}

// empties is the time at which nothing that was charged is used any more.
func (k *memoryKey) empties(plan *plannedKey) int64 {
	l := plan.limits[0]
	switch k.kind {
	case 'w':
		return k.buckets.Empties(k.newest, k.window)
	case 'g':
		return k.newest + k.level.Reshape(k.window, l.WindowUS(), l.Capacity()).Falls(0, l.Units, l.WindowUS())
	}
	return k.newest + plan.longest
}

// judge returns what a limit has left under ceiling and how long until cost
// fits: 0 now, −1 never.
func (k *memoryKey) judge(l *quota.Limit, ceiling, cost int64) (remaining, waitUS int64) {
	used := k.used(l)
	remaining = max(0, ceiling-used)
	switch {
	case cost > ceiling:
		return remaining, -1
	case used+cost <= ceiling:
		return remaining, 0
	}
	return remaining, k.clock.Until(k.fits(l, ceiling, cost))
}

func (k *memoryKey) used(l *quota.Limit) int64 {
	switch k.kind {
	case 'w':
		return k.bucketsNow.Used(k.clock.Now, l.WindowUS())
	case 'g':
		return k.levelNow.Used()
	}
	i := k.oldestInside(l.WindowUS())
	if i == len(k.log) {
		return 0
	}
	return k.log[len(k.log)-1].sum - k.log[i].sum + k.log[i].cost
}

// fits is the partition's time at which cost fits under ceiling.
func (k *memoryKey) fits(l *quota.Limit, ceiling, cost int64) int64 {
	switch k.kind {
	case 'w':
		return k.bucketsNow.Fits(k.clock.Now, l.WindowUS(), ceiling, cost)
	case 'g':
		return k.clock.Now + k.levelNow.Falls(ceiling-cost, l.Units, l.WindowUS())
	}
	// The entry that holds the (ceiling−cost+1)-th newest unit has to leave.
	unit := k.log[len(k.log)-1].sum - (ceiling - cost)
	i := sort.Search(len(k.log), func(i int) bool { return k.log[i].sum >= unit })
	return k.log[i].us + l.WindowUS()
}

// reset is how long until nothing is used.
func (k *memoryKey) reset(l *quota.Limit) int64 {
	due := k.clock.Now
	switch k.kind {
	case 'w':
		due = k.bucketsNow.Empties(k.clock.Now, l.WindowUS())
	case 'g':
		due += k.levelNow.Falls(0, l.Units, l.WindowUS())
	default:
		due = k.newest + l.WindowUS()
	}
	if due <= k.clock.Now {
		return 0
	}
	return k.clock.Until(due)
}

func (k *memoryKey) oldestInside(window int64) int {
	edge := k.clock.Now - window
	return sort.Search(len(k.log), func(i int) bool { return k.log[i].us > edge })
}

// charge adds cost at the partition's time.
func (k *memoryKey) charge(plan *plannedKey, cost int64) {
	switch k.kind {
	case 'w':
		k.bucketsNow = k.bucketsNow.Add(cost)
	case 'g':
		k.levelNow = k.levelNow.Add(cost, plan.limits[0].Capacity())
	default:
		k.append(min(cost, plan.trim), plan.trim)
	}
	k.buckets, k.level, k.window = k.bucketsNow, k.levelNow, plan.limits[0].WindowUS()
	k.newest, k.offset = k.clock.Now, k.clock.Offset
}

// append adds an admission and forgets those that the newest trim units do not reach.
func (k *memoryKey) append(cost, trim int64) {
	var sum int64
	if n := len(k.log); n > 0 {
		sum = k.log[n-1].sum
	}
	k.log = append(k.log, admission{us: k.clock.Now, sum: sum + cost, cost: cost})
	drop := 0
	for sum+cost-k.log[drop].sum >= trim {
		drop++
	}
	if drop == 0 {
		return
	}
	if drop > len(k.log)/2 { // a lowered limit: let the array go
		k.log = append([]admission(nil), k.log[drop:]...)
		return
	}
	k.log = k.log[drop:] // slides along; append moves it when it reaches the end
}

// memoryCounter is what MemoryStore keeps of a usage counter: the Go version of
// lua/usage_counters.lua. Earlier buckets are not kept, since nobody reads them back.
type memoryCounter struct {
	quota.Counter
	expires int64 // TIME after which peers do not count it any more
}

// add charges units at TIME. A clock that falls by less than a bucket is waited
// out in the newest; one that steps further back has its buckets counted anew.
func (t *memoryCounter) add(l *quota.Limit, time, units int64) {
	bucket := time / l.BucketUS()
	switch {
	case t.Generation == 0:
		t.Generation, t.Bucket = time, bucket
	case bucket > t.Bucket:
		t.Bucket, t.Units = bucket, 0
	case bucket < t.Bucket-1:
		t.Generation, t.Bucket, t.Units = t.Generation+1, bucket, 0
	}
	t.Units = min(t.Units+units, quota.MaxCounter)
}

// count charges the call to its counters if it was charged, and adds their values to
// the verdict in either case.
func (m *MemoryStore) count(s *memoryShard, c *Call, v *Verdict, charged bool, now int64) {
	if len(c.Counters) == 0 {
		return
	}
	n := 0
	for i, l := range c.Plan.limits {
		if l.Scope != quota.ScopeGlobal {
			continue
		}
		key := c.Counters[n]
		n++
		t := s.counters[key]
		if t != nil && t.expires <= now && !m.keep {
			delete(s.counters, key)
			t = nil
		}
		if charged {
			if t == nil {
				t = &memoryCounter{}
				s.counters[key] = t
			}
			t.add(l, now, c.Cost)
			t.expires = now + ttlOf(l).Microseconds()
		}
		if t != nil {
			v.Limits[i].Counter = t.Counter
		}
	}
}
