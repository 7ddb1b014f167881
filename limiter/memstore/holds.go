package memstore

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// holdSet is the open holds under one key: the Go counterpart of redisstore/lua/holds.lua.
type holdSet struct {
	open   []hold // by their ends, then by their names
	sum    int64  // units of all
	newest int64  // when the latest was made, extended or settled, by the set's clock
	offset int64  // of the set's clock, kept with newest
	final  int64  // when the last ends at the latest, however often it is extended, under a bound
}

// last is when the last hold ends, by the set's clock.
func (h *holdSet) last() int64 {
	if len(h.open) == 0 {
		return 0
	}
	return h.open[len(h.open)-1].ends
}

// hold is one of a reservation, by the set's clock.
type hold struct {
	ends  int64
	name  string // of Redis's member: "name:units"
	units int64
}

func compareHolds(a, b hold) int {
	return cmp.Or(cmp.Compare(a.ends, b.ends), cmp.Compare(a.name, b.name))
}

func holdName(id, units int64) string {
	return store.HoldName(id) + ":" + strconv.FormatInt(units, 10)
}

const (
	// mostPopped is how many holds that are over a call removes, or leaves out, at most.
	mostPopped = 64
	// mostWaited is how many open holds a denial looks at to say when the cost fits.
	mostWaited = 64
)

// holds is a holdSet in a call.
type holds struct {
	*holdSet
	name  string
	entry *entry
	clock quota.PartitionClock
	over  int   // how many at the front are over: those that a call pops
	held  int64 // units of the others
}

// at sets the set's clock from TIME and leaves out what is over then.
func (h *holds) at(time int64) {
	h.clock = quota.PartitionClockAt(time, h.newest, h.offset, h.last())
	h.over, h.held = 0, h.sum
	for h.over < min(len(h.open), mostPopped) && h.open[h.over].ends <= h.clock.Now {
		h.held -= h.open[h.over].units
		h.over++
	}
}

// find is the place of a hold that is still open, false for none.
func (h *holds) find(name string) (i int, open bool) {
	i = slices.IndexFunc(h.open, func(o hold) bool { return o.name == name })
	return i, i >= 0 && h.open[i].ends > h.clock.Now
}

// pop removes what is over.
func (h *holds) pop() {
	for _, o := range h.open[:h.over] {
		h.sum -= o.units
	}
	h.open, h.over = slices.Delete(h.open, 0, h.over), 0
}

// drop removes a hold if it is open.
func (h *holds) drop(name string) bool {
	i, open := h.find(name)
	if open {
		h.sum -= h.open[i].units
		h.open = slices.Delete(h.open, i, i+1)
	}
	return open
}

// add makes a hold that ends ttl from now.
func (h *holds) add(name string, units, ttl int64) {
	n := hold{ends: h.clock.Now + ttl, name: name, units: units}
	i, _ := slices.BinarySearchFunc(h.open, n, compareHolds)
	h.open = slices.Insert(h.open, i, n)
	h.sum += units
	h.held += units
}

// reset is how long until the last hold ends.
func (h *holds) reset() int64 {
	if len(h.open) == h.over {
		return 0
	}
	return h.clock.Until(h.last())
}

// ends is how long until the m-th hold that is not over ends, 0 for the zeroth.
func (h *holds) ends(m int) int64 {
	if m == 0 {
		return 0
	}
	return h.clock.Until(h.open[h.over+m-1].ends)
}

// wait is how long until a cost fits while units age and holds end: fits is how long under a ceiling that the given
// units are held of, where they do not do so any more, and −1 never.
func (h *holds) wait(fits func(held int64) int64) int64 {
	open := min(len(h.open)-h.over, mostWaited)
	left := make([]int64, open+1) // by how many have ended
	left[0] = h.held
	for m := 1; m <= open; m++ {
		left[m] = left[m-1] - h.open[h.over+m-1].units
	}
	before := int64(-1)
	for m := range left {
		ends, w := h.ends(m), fits(left[m])
		switch {
		case w < 0 || w > ends:
			before = w
			continue
		case before >= 0:
			return max(1, min(before, ends))
		}
		return max(1, ends)
	}
	if len(h.open)-h.over > open {
		return max(1, h.ends(open))
	}
	return before
}

// reservation is the record of one.
type reservation struct {
	store.HoldVerdict
	sets    []string // the names of the sets that it has holds in
	units   []int64  // and how many in each
	settled bool
	ends    int64 // TIME from which on it is forgotten
	last    int64 // the last TIME at which its holds may end, under a bound, and the epoch of the bound; else 0
	epoch   uint32
	made    int64 // TIME, under a bound
}

// reserved is the record of the call's reservation, nil for none.
func (u *call) reserved() *reservation {
	if e := u.shard.Get(store.ReservationKey(u.Keys[0], u.Hold.ID), u.now); e != nil {
		return e.Value.(*reservation)
	}
	return nil
}

// set returns the holds under a name.
func (u *call) set(name string) *holds {
	if h := u.sets[name]; h != nil {
		return h
	}
	h := &holds{name: name, entry: u.shard.Get(name, u.now)}
	if h.entry == nil {
		h.entry = &entry{Value: &holdSet{}}
	}
	h.holdSet = h.entry.Value.(*holdSet)
	h.at(u.now)
	if u.sets == nil {
		u.sets = map[string]*holds{}
	}
	u.sets[name] = h
	return h
}

// open is whether all holds of a reservation are open.
func (u *call) open(r *reservation) bool {
	all := true
	for i, name := range r.sets {
		_, open := u.set(name).find(holdName(u.Hold.ID, r.units[i]))
		all = all && open
	}
	return all
}

// popAll removes from the sets of a call what is over, and keeps steps of their clocks.
func (u *call) popAll() {
	for _, h := range u.sets {
		h.pop()
		h.offset = h.clock.Offset
		u.dropEmpty(h)
	}
}

func (u *call) dropEmpty(h *holds) {
	if len(h.open) == 0 && h.entry.Ends != 0 {
		u.shard.Drop(h.name)
		h.entry.Ends = 0
	}
}

// keepSet writes a set that has changed at its clock, which stays where it is at a TIME outside the call's fence.
func (u *call) keepSet(h *holds) {
	if !u.unknown {
		h.newest, h.offset = h.clock.Now, h.clock.Offset
	}
	if len(h.open) > 0 {
		u.keep(h.name, h.entry, h.last()-h.clock.Now+store.HoldsMargin.Microseconds())
	}
	u.dropEmpty(h)
}

// missingHolds is how many entries a reserve or a settle needs that the store does not have.
func (u *call) missingHolds() int {
	n := 0
	for i := range u.Keys {
		if _, held := u.Share(i); held > 0 && u.keys[i].holds.entry.Ends == 0 {
			n++
		}
	}
	if (u.Op == store.OpReserve || u.Op == store.OpSettle) && u.reserved() == nil {
		n++
	}
	return n
}

// hold makes the holds of a reservation, and its record.
func (u *call) hold() {
	ttl := u.Hold.TTLUS
	if u.reservation = (&reservation{}); u.allows < math.MaxInt64 {
		ttl = min(ttl, u.allows)
		u.reservation.last, u.reservation.epoch, u.reservation.made = u.now+u.allows, u.epoch, u.now
	}
	r := u.reservation
	r.ID, r.Held, r.ExpiresUS, r.ends = u.Hold.ID, u.Cost, u.now+ttl, u.now+ttl+u.Hold.KeepUS
	for i := range u.Keys {
		if _, units := u.Share(i); units > 0 {
			h := u.keys[i].holds
			if len(h.open) == h.over {
				h.final = 0
			}
			if r.last > 0 {
				h.final = max(h.final, h.clock.Now+u.allows)
			}
			h.add(holdName(r.ID, units), units, ttl)
			u.keepSet(h)
			r.sets, r.units = append(r.sets, h.name), append(r.units, units)
		}
	}
	u.keepReservation()
}

// covered is whether what a settle charges to bounded limits was held under their bounds: by this epoch, since after a step of
// the clock nobody knows for how long, and in no period before the one in which it was made, where there may have been no room.
func (u *call) covered(r *reservation) bool {
	for i, l := range u.Plan.Limits {
		h := u.keys[u.Plan.KeyOf[i]].holds
		if u.Bounds == nil || l.MaxOvershoot == 0 || h == nil {
			continue
		}
		set := slices.Index(r.sets, h.name)
		now := u.period(i)
		if set < 0 || r.epoch != u.epoch || now != nil && r.made >= now.End {
			return false
		}
		if _, open := h.find(holdName(r.ID, r.units[set])); !open {
			return false
		}
	}
	return true
}

func (u *call) keepReservation() {
	name := store.ReservationKey(u.Keys[0], u.Hold.ID)
	e := u.shard.Get(name, u.now)
	if e == nil {
		e = &entry{}
	}
	e.Value = u.reservation
	u.keep(name, e, u.reservation.ends-u.now)
}

// settle judges a settle: v is its verdict if it charges nothing. Otherwise limits see its holds as gone, and release
// removes them.
func (u *call) settle() (v store.Verdict, charges bool) {
	v.StoreUS = u.now
	was, gone := u.reserved(), u.Hold.GoneUS
	if was != nil {
		gone = was.ends
	}
	if u.now >= gone {
		v.Outcome = store.Gone
		return v, false
	}
	if was != nil && was.settled {
		v.Outcome, v.Hold = store.Replayed, was.HoldVerdict
		return v, false
	}
	r := &reservation{settled: true, ends: max(u.Hold.GoneUS, u.now+u.Hold.KeepUS)} // without it another settle would charge until GoneUS
	if was != nil {
		r.HoldVerdict, r.sets, r.units, r.ends = was.HoldVerdict, was.sets, was.units, max(was.ends, r.ends)
		r.epoch, r.made = was.epoch, was.made
		r.Released = u.open(was)
	}
	r.ID, r.Charged = u.Hold.ID, u.Cost
	for i, name := range r.sets {
		if _, open := u.set(name).find(holdName(r.ID, r.units[i])); open {
			u.set(name).held -= r.units[i]
		}
	}
	u.reservation = r
	return v, true
}

// release removes the holds of a reservation that is settled, and keeps the outcome.
func (u *call) release() {
	r := u.reservation
	for i, name := range r.sets {
		if h := u.set(name); h.drop(holdName(r.ID, r.units[i])) {
			u.keepSet(h)
		}
	}
	u.keepReservation()
}

// extend has the holds of the call's reservation end TTLUS from now.
func (u *call) extend() store.Verdict {
	r := u.reserved()
	open := r != nil && !r.settled && u.now < r.ends && u.open(r)
	u.popAll()
	if !open {
		return store.Verdict{Outcome: store.Gone, StoreUS: u.now}
	}
	later, ttl := *r, u.Hold.TTLUS
	if r.last > 0 {
		ttl = max(0, min(ttl, r.last-u.now))
	}
	later.ExpiresUS, later.ends = u.now+ttl, u.now+ttl+u.Hold.KeepUS
	for i, name := range r.sets {
		h, member := u.set(name), holdName(r.ID, r.units[i])
		h.drop(member)
		h.held -= r.units[i]
		h.add(member, r.units[i], ttl)
		u.keepSet(h)
	}
	u.reservation = &later
	u.keepReservation()
	u.load()
	u.noteGauges()
	v := store.Verdict{Outcome: store.Admitted, StoreUS: u.now, Limits: make([]store.LimitVerdict, len(u.Plan.Limits)), Hold: later.HoldVerdict}
	u.counted(v.Limits)
	for i, l := range u.Plan.Limits {
		if !l.Holds() {
			v.Limits[i] = store.LimitVerdict{}
		}
	}
	return v
}

// noteGauges has the usage counters of the call say what is held of their limits, where they do not.
func (u *call) noteGauges() {
	n := -1
	for i, l := range u.Plan.Limits {
		if l.Scope != quota.ScopeGlobal || u.counters == nil {
			continue
		}
		n++
		key := u.Plan.KeyOf[i]
		h, e := u.keys[key].holds, u.counters[n]
		if h == nil {
			continue
		}
		c := e.Value.(*usageCounter)
		g := quota.Gauge{Sequence: c.gauge.Sequence}
		if h.last() > h.clock.Now { // else some may wait to be removed
			g.Units, g.UntilUS = h.held, h.last()-h.clock.Offset
		}
		if g == c.gauge || e.Ends == 0 && !u.shard.Take(1, u.now) {
			continue
		}
		if c.Generation == 0 {
			c.add(l, u.period(i), u.now, 0)
		}
		g.Sequence = max(g.Sequence+1, u.now)
		c.gauge = g
		u.keepCounter(n, key)
	}
}

// keepCounter has the n-th counter live for as long as one of its key has to, and as its gauge says.
func (u *call) keepCounter(n, key int) {
	e := u.counters[n]
	until := e.Value.(*usageCounter).gauge.UntilUS + store.HoldsMargin.Microseconds()
	lasts := u.Plan.Keys[key].TTL.Microseconds()
	if c := e.Value.(*usageCounter); c.EndsUS > 0 {
		lasts += max(0, c.EndsUS-u.now)
	}
	u.keep(u.names[n], e, max(lasts, e.Ends-u.now, until-u.now))
}

// held is how many units open holds have.
func (k *keyed) held() int64 {
	if k.holds == nil {
		return 0
	}
	return k.holds.held
}

// open is what loans have to know of open holds, at TIME.
func (k *keyed) open(time int64) (o loan.Holds) {
	if o.Units = k.held(); o.Units > 0 {
		o.Until = time + max(0, k.holds.final-k.holds.clock.Now)
	}
	return o
}

// judge is keyState.judge where open holds take a part of the ceiling.
func (k *keyed) judge(l *quota.Limit, from, ceiling int64) (remaining, waitUS int64) {
	if k.holds == nil {
		return k.keyState.judge(l, from, ceiling, k.sum)
	}
	remaining, waitUS = k.keyState.judge(l, from, ceiling-k.held(), k.sum)
	if waitUS != 0 && k.sum <= ceiling {
		waitUS = k.holds.wait(func(held int64) int64 {
			_, w := k.keyState.judge(l, from, ceiling-held, k.sum)
			return w
		})
	}
	return remaining, waitUS
}

// full is whether there is no room for another hold.
func (h *holds) full() bool { return len(h.open)-h.over >= quota.MaxHolds }
