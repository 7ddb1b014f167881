package memstore

import (
	"slices"
	"sort"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// keyState is what Store keeps under one key: the Go counterpart of the states
// in redisstore/lua, on the arithmetic of quota.
type keyState struct {
	kind   byte
	newest int64 // the newest stamp
	offset int64 // of the partition's clock, kept with newest
	clock  quota.PartitionClock

	log     []admission   // 'l'
	before  int64         // units that left the log
	last    need          // of the plan that the log was charged by last; ends is not set
	former  []need        // of those before it that need more, while they are kept
	buckets quota.Buckets // 'w', as of the newest stamp
	level   quota.Level   // 'g', as of the newest stamp
	window  int64         // µs; the W that buckets or level were written under
	periods quota.Periods // 'p'

	// The same at clock. They are kept only when something is charged: TIME may
	// yet go back behind what a denial or a peek has seen.
	bucketsNow quota.Buckets
	levelNow   quota.Level
	periodsNow quota.Periods
	older      bool // of periodsNow the older one counts
}

// need is how much of a log the limits of a plan need.
type need struct {
	units, window int64 // window: the longest W, µs
	ends          int64 // when it is kept no more: twice the window after the last charge
}

// formerPlans is how many former plans a log knows apart.
const formerPlans = 3

// needed notes that a plan charges the log, and returns the most units and the longest window that
// its limits or those lately in force need. It is needed of redisstore/lua/log.lua.
func (k *keyState) needed(plan *store.PlannedKey) (most need) {
	own := need{units: plan.Trim, window: plan.Longest}
	if k.last == own && k.former == nil || len(k.log) == 0 {
		k.last, k.former = own, nil
		return own
	}
	k.last.ends = k.newest + 2*k.last.window
	former := k.former
	if k.last.units != own.units || k.last.window != own.window {
		former = append(former, k.last)
	}
	k.last, k.former, most = own, nil, own
	for _, n := range former {
		if n.ends > k.clock.Now && (n.units > own.units || n.window > own.window) {
			k.former = append(k.former, n)
			most = need{max(most.units, n.units), max(most.window, n.window), max(most.ends, n.ends)}
		}
	}
	if len(k.former) > formerPlans {
		k.former = []need{most}
	}
	return most
}

// admission is one entry of a log: the units since the entry before it.
type admission struct {
	us  int64 // stamp
	sum int64 // units admitted up to and including it
}

// at sets the partition's clock from TIME and works out the counters there.
func (k *keyState) at(plan *store.PlannedKey, time int64) {
	l, w := plan.Limits[0], plan.Limits[0].WindowUS()
	switch k.kind {
	case 'w':
		b := k.buckets.Reshape(k.newest, k.window, w)
		k.clock = quota.PartitionClockAt(time, k.newest, k.offset, b.Empties(k.newest, w))
		k.bucketsNow = b.At(k.clock.Now, w)
	case 'g':
		v := k.level.Reshape(k.window, w, l.Capacity())
		k.clock = quota.PartitionClockAt(time, k.newest, k.offset, k.newest+v.Falls(0, l.Units, w))
		k.levelNow = v.Drain(k.clock.Now-k.newest, l.Units, w)
	case 'p': // they go by TIME itself
		now := l.Calendar.At(time)
		k.clock = quota.PartitionClock{Time: time, Now: time}
		k.periodsNow, k.older = k.periods.At(time, now, l.Calendar.Next(now))
	default:
		k.clock = quota.PartitionClockAt(time, k.newest, k.offset, k.newest+plan.Longest)
	}
}

// judge returns what a limit has left under ceiling and how long until cost
// fits: 0 now, −1 never.
func (k *keyState) judge(l *quota.Limit, from, ceiling, cost int64) (remaining, waitUS int64) {
	used := k.used(l, from)
	remaining = max(0, ceiling-used)
	switch {
	case cost > ceiling:
		return remaining, -1
	case used+cost <= ceiling:
		return remaining, 0
	}
	return remaining, k.clock.Until(k.fits(l, ceiling, cost))
}

// edge is where the window of a log begins, of which all counts that was admitted from a TIME on.
func (k *keyState) edge(l *quota.Limit, from int64) int64 {
	edge := k.clock.Now - l.WindowUS()
	if from > 0 {
		edge = max(edge, from+k.clock.Offset-1)
	}
	return edge
}

func (k *keyState) used(l *quota.Limit, from int64) int64 {
	switch k.kind {
	case 'w':
		return k.bucketsNow.Used(k.clock.Now, l.WindowUS())
	case 'g':
		return k.levelNow.Used()
	case 'p':
		return k.periodsNow.Count(k.older).Units
	}
	edge := k.edge(l, from)
	return k.total() - k.sum(sort.Search(len(k.log), func(i int) bool { return k.log[i].us > edge }))
}

// fits is the partition's time at which cost fits under ceiling.
func (k *keyState) fits(l *quota.Limit, ceiling, cost int64) int64 {
	switch k.kind {
	case 'w':
		return k.bucketsNow.Fits(k.clock.Now, l.WindowUS(), ceiling, cost)
	case 'g':
		return k.clock.Now + k.levelNow.Falls(ceiling-cost, l.Units, l.WindowUS())
	case 'p':
		return k.periodsNow.Falls(k.older, ceiling-cost)
	}
	// The entry that holds the (ceiling−cost+1)-th newest unit has to leave.
	unit := k.total() - (ceiling - cost)
	i := sort.Search(len(k.log), func(i int) bool { return k.log[i].sum >= unit })
	return k.log[i].us + l.WindowUS()
}

// reset is how long until nothing is used.
func (k *keyState) reset(l *quota.Limit, from int64) int64 {
	due := k.clock.Now
	switch k.kind {
	case 'w':
		due = k.bucketsNow.Empties(k.clock.Now, l.WindowUS())
	case 'g':
		due += k.levelNow.Falls(0, l.Units, l.WindowUS())
	case 'p':
		if k.used(l, from) > 0 {
			due = k.periodsNow.Falls(k.older, 0)
		}
	default:
		if due = k.newest + l.WindowUS(); k.newest <= k.edge(l, from) {
			return 0
		}
	}
	if due <= k.clock.Now {
		return 0
	}
	return k.clock.Until(due)
}

// total is how many units were ever admitted to the log.
func (k *keyState) total() int64 { return k.sum(len(k.log)) }

// sum is the units before the i-th entry.
func (k *keyState) sum(i int) int64 {
	if i == 0 {
		return k.before
	}
	return k.log[i-1].sum
}

// charge adds cost at the partition's time, to a log as of a TIME, which for a call outside its fence is not that of the
// store. A log forgets what its windows have left.
func (k *keyState) charge(plan *store.PlannedKey, cost, time int64, coarse bool) {
	switch k.kind {
	case 'w':
		k.bucketsNow = k.bucketsNow.Add(cost)
	case 'g':
		k.levelNow = k.levelNow.Add(cost, plan.Limits[0].Capacity())
	case 'p':
		k.periodsNow.Count(k.older).Add(cost)
	default:
		if time != k.clock.Time {
			k.clock = quota.PartitionClock{Time: time, Now: max(k.newest, time+k.offset), Offset: k.offset}
		}
		n := k.needed(plan)
		k.append(min(cost, n.units), n.units, k.clock.Now-n.window)
		if coarse {
			k.coarsen()
		}
	}
	k.buckets, k.level, k.periods, k.window = k.bucketsNow, k.levelNow, k.periodsNow, plan.Limits[0].WindowUS()
	k.newest, k.offset = k.clock.Now, k.clock.Offset
}

// refund takes back the newest units. A log loses what no limit needs any more too, and its newest stamp becomes that of what is
// left, 0 for nothing: its clock may go back so far.
func (k *keyState) refund(plan *store.PlannedKey, units int64) {
	k.offset = k.clock.Offset
	if k.kind != 'l' {
		k.bucketsNow, k.levelNow = k.bucketsNow.Sub(units), k.levelNow.Sub(units)
		k.periodsNow.Count(k.older).Add(-units)
		k.buckets, k.level, k.periods, k.window, k.newest = k.bucketsNow, k.levelNow, k.periodsNow, plan.Limits[0].WindowUS(), k.clock.Now
		return
	}
	n := k.needed(plan)
	k.drop(n.units, k.clock.Now-n.window)
	k.before = max(k.before, k.total()-n.units)
	last := k.total() - units // the newest unit that stays
	end := sort.Search(len(k.log), func(i int) bool { return k.log[i].sum >= last }) + 1
	if k.newest = 0; last <= k.before {
		k.log, k.before, k.offset = nil, 0, 0
		return
	}
	k.log = slices.Clone(k.log[:end])
	k.log[end-1].sum = last
	k.newest = k.log[end-1].us
}

// lasts is for how long after a charge an answer can depend on it, µs.
func (k *keyState) lasts(plan *store.PlannedKey) int64 {
	ttl := plan.TTL.Microseconds()
	switch k.kind {
	case 'g':
		ttl += k.level.Falls(0, plan.Limits[0].Units, k.window)
	case 'p':
		ttl += max(0, k.periods.Newest.End-k.clock.Time)
	}
	return ttl
}

// append adds an admission and forgets those that the newest trim units do not reach, and those up to edge.
func (k *keyState) append(cost, trim, edge int64) {
	sum := k.total() + cost
	k.log = append(k.log, admission{us: k.clock.Now, sum: sum})
	k.drop(trim, edge)
}

// drop forgets what append says.
func (k *keyState) drop(trim, edge int64) {
	sum, drop := k.total(), 0
	for drop < len(k.log) && (sum-k.log[drop].sum >= trim || k.log[drop].us <= edge) {
		drop++
	}
	k.before = k.sum(drop)
	if drop > len(k.log)/2 { // a lowered limit: let the array go
		k.log = append([]admission(nil), k.log[drop:]...)
		return
	}
	k.log = k.log[drop:] // slides along; append moves it when it reaches the end
}

const (
	// coarseFrom is the length from which a log is made coarse, and coarseMost that to which.
	coarseFrom, coarseMost = 32, 192
	// coarsePart is the part of its age by which a unit counts as spent later at most.
	coarsePart = 16
)

// coarsen merges entries when the array of the log is full, so that it hardly ever gets
// a longer one. An entry takes in what was admitted less than a coarsePart of its age
// earlier; a log that is still long, of admissions at all ages from milliseconds to days, gets
// coarser.
func (k *keyState) coarsen() {
	if len(k.log) < max(coarseFrom, cap(k.log)) {
		return
	}
	for part := int64(coarsePart); part > 0; part /= 2 {
		if k.merge(part); len(k.log) <= coarseMost {
			return
		}
	}
}

func (k *keyState) merge(part int64) {
	log := k.log[:0]
	for i, e := range k.log {
		switch {
		case i == 0 || i+1 == len(k.log):
			log = append(log, e)
		default:
			next := k.log[i+1].us
			if next != e.us && next-log[len(log)-1].us >= (k.clock.Now-next)/part {
				log = append(log, e)
			}
		}
	}
	k.log = log
}

// usageCounter is what Store keeps of a usage counter: the Go version of
// redisstore/lua/usage_counters.lua. Earlier buckets are not kept, since nobody reads them back.
type usageCounter struct {
	quota.Counter
	past  quota.PeriodUnits // of a limit with a calendar, the period before the newest in which anything was used
	gauge quota.Gauge
}

// of is the counter of a period.
func (t *usageCounter) of(now *quota.PeriodUnits) quota.Counter {
	c := quota.Counter{Generation: t.Generation, Bucket: now.Number, EndsUS: now.End}
	switch now.Number {
	case t.Bucket:
		c.Units = t.Units
	case t.past.Number:
		c.Units = t.past.Units
	}
	return c
}

// addPeriod charges units at TIME in the period that counts. A clock that is set back counts in the older of two periods again; one
// that steps further back has its periods counted anew.
func (t *usageCounter) addPeriod(now *quota.PeriodUnits, time, units int64) {
	switch {
	case t.Generation == 0:
		t.Generation, t.Bucket = time, now.Number
	case now.Number > t.Bucket:
		t.past = quota.PeriodUnits{Number: t.Bucket, End: t.EndsUS, Units: t.Units}
		t.Bucket, t.Units = now.Number, 0
	case now.Number < t.past.Number:
		t.Counter, t.past = quota.Counter{Generation: t.Generation + 1, Bucket: now.Number}, quota.PeriodUnits{}
	case now.Number < t.Bucket:
		if now.Number > t.past.Number {
			t.past = quota.PeriodUnits{Number: now.Number}
		}
		t.past.End = now.End
		t.past.Add(units)
		return
	}
	t.EndsUS, t.Units = now.End, min(t.Units+units, quota.MaxCounter)
}

// add charges units at TIME, in the period now of a limit with a calendar. A clock that falls by less than a bucket is waited
// out in the newest; one that steps further back has its buckets counted anew.
func (t *usageCounter) add(l *quota.Limit, now *quota.PeriodUnits, time, units int64) {
	if now != nil {
		t.addPeriod(now, time, units)
		return
	}
	bucket := time / l.WindowUS()
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
