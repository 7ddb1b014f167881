// Package memstore is the Store in this process's memory, with the meaning of redisstore's
// scripts. It serves a regiond without Redis, and beside a Redis records what that admits
// and decides while it is away. What it holds is bounded, and gone with the process.
package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/internal/base/expiring"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// Store is a store.Store in memory. Safe for concurrent use.
type Store struct {
	now     func() int64
	coarse  bool
	keep    bool
	hash    maphash.Seed
	entries *expiring.Map[string, any] // *keyState, *usageCounter or *loan.State, by Redis's names
	records *expiring.Map[string, *store.Admission]
}

// shard has all of a tenant. Records of Idempotency-Keys have shards of their own, by the tenant
// too, which are locked second.
type shard = expiring.Shard[string, any]

type entry = expiring.Entry[any]

const (
	// DefaultPartitions bounds what random ids can make a Store hold.
	DefaultPartitions = 1_000_000
	idempotencyUS     = 60_000_000
)

// Options configures a Store.
type Options struct {
	// Now is the store's clock, µs since the epoch; nil means the monotonic clock
	// of this process, counted from the wall clock at its start. It may go back.
	Now func() int64
	// Partitions bounds how many are kept, whoever's they are; 0 means
	// DefaultPartitions. Usage counters count like a partition each. What needs another is refused until some
	// expire, never others evicted.
	Partitions int
	// Records bounds how many admissions with an Idempotency-Key are kept; 0 means
	// DefaultPartitions. Beyond it new ones are refused, or with Coarse not kept.
	Records int
	// Coarse bounds a partition's log: what admits by it errs towards denying.
	Coarse bool
	// keep is for tests that move Now past every expiry and back, where a Redis
	// whose own clock stands still expires nothing.
	keep bool
}

// New returns an empty store.
func New(o Options) *Store {
	if o.Now == nil {
		start := time.Now()
		base := start.UnixMicro()
		o.Now = func() int64 { return base + time.Since(start).Microseconds() }
	}
	return &Store{
		now: o.Now, coarse: o.Coarse, keep: o.keep, hash: maphash.MakeSeed(),
		entries: expiring.New[string, any](cmp.Or(o.Partitions, DefaultPartitions)),
		records: expiring.New[string, *store.Admission](cmp.Or(o.Records, DefaultPartitions)),
	}
}

// Decide implements Store. It does not wait and does not fail.
func (m *Store) Decide(_ context.Context, calls []store.Call, verdicts []store.Verdict) {
	for i := range calls {
		u := m.lock(&calls[i])
		verdicts[i] = u.decide()
		u.unlock()
	}
}

// Record charges a call that another store has admitted, or makes its holds. Without room it is not recorded:
// then its partition is refused while the other store is away. An admission with an
// Idempotency-Key is kept as well, in place of an earlier one; nil for none.
func (m *Store) Record(c *store.Call, a *store.Admission) {
	u := m.lock(c)
	defer u.unlock()
	u.load()
	if u.Op == store.OpRefund {
		u.refund()
		return
	}
	u.charge()
	u.popAll()
	if a != nil {
		u.remember(a)
	}
}

// Earlier returns the admission with the Idempotency-Key of a call, nil for none.
func (m *Store) Earlier(c *store.Call) *store.Admission {
	s := m.records.Shard(m.place(c.Record))
	s.Lock()
	defer s.Unlock()
	now := m.now()
	if e := s.Get(c.Record, now); e != nil && now < e.Value.US+idempotencyUS {
		return e.Value
	}
	return nil
}

// Settle notes that another store knows an admission of this process's own. drop forgets it:
// the other store has another one.
func (m *Store) Settle(a *store.Admission, drop bool) {
	s := m.records.Shard(m.place(a.Record))
	s.Lock()
	defer s.Unlock()
	e := s.Get(a.Record, m.now())
	switch {
	case e == nil || e.Value != a:
	case drop:
		s.Drop(a.Record)
	default:
		known := *a
		known.Own = false
		e.Value = &known
	}
}

// ResetAll implements Store.
func (m *Store) ResetAll(_ context.Context, tenant string, upTo int64) error {
	prefix := string(store.AppendPrefix(nil, tenant))
	s := m.shard(prefix)
	s.Lock()
	defer s.Unlock()
	for name, e := range s.All() {
		c, counter := e.Value.(*usageCounter)
		_, loans := e.Value.(*loan.State)
		if strings.HasPrefix(name, prefix) && !loans && (!counter || c.Generation <= upTo) {
			s.Drop(name)
		}
	}
	records := m.records.Shard(m.place(prefix))
	records.Lock()
	defer records.Unlock()
	for name := range records.All() {
		if strings.HasPrefix(name, prefix) {
			records.Drop(name)
		}
	}
	return nil
}

// TimeUS reads the store's clock, microseconds since the epoch.
func (m *Store) TimeUS() int64 { return m.now() }

// shard returns the shard of a name's tenant: the text up to the closing brace.
func (m *Store) shard(name string) *shard { return m.entries.Shard(m.place(name)) }

func (m *Store) place(name string) uint64 {
	return maphash.String(m.hash, name[:strings.IndexByte(name, '}')+1])
}

// call is a call at work, with the shards locked that it needs.
type call struct {
	*store.Call
	store    *Store
	shard    *shard
	record   *expiring.Shard[string, *store.Admission] // nil without an Idempotency-Key
	now      int64
	time     int64 // that a log is charged at: now, or inside the call's fence
	keys     []keyed
	counters []*entry
	names    []string // of the counters
	ceilings []int64  // those of the call, lowered to what bounds leave
	unknown  bool     // under some bound the epoch is not known
	epoch    uint32   // of the bounds, 0 while it is not known
	allows   int64    // how long bounds allow a reservation to last, µs
	from     []int64  // TIME from which on usage counts under each limit, 0 for all of the window
	missing  int      // how many entries are not in the store
	sets     map[string]*holds
	// reservation is the record that the call makes.
	reservation *reservation
}

// keyed is a key of a call.
type keyed struct {
	*keyState
	entry   *entry
	holds   *holds // nil where the key takes none
	charged int64  // what the call charges here
	sum     int64  // what has to fit: that and what the call holds, with the cost of equal keys before it
}

// lock locks the shards of a call, always in one order, and reads the clock then: read
// before, it would be behind that of a call which got the lock first.
func (m *Store) lock(c *store.Call) call {
	u := call{Call: c, store: m, shard: m.shard(c.Keys[0]), allows: math.MaxInt64}
	u.shard.Lock()
	if c.Record != "" {
		u.record = m.records.Shard(m.place(c.Record))
		u.record.Lock()
	}
	u.now = m.now()
	u.time = u.now
	return u
}

func (u *call) unlock() {
	u.shard.Unlock()
	if u.record != nil {
		u.record.Unlock()
	}
}

var errFull = errors.New("the in-memory store holds as many partitions as it may")

func (u *call) decide() store.Verdict {
	if u.record != nil {
		if e := u.record.Get(u.Record, u.now); e != nil && u.now < e.Value.US+idempotencyUS {
			return u.replay(e.Value)
		}
	}
	if u.Op == store.OpExtend {
		return u.extend()
	}
	u.load()
	if u.Op == store.OpLoans {
		return u.lend()
	}
	v := store.Verdict{Outcome: store.Admitted, StoreUS: u.now, Limits: make([]store.LimitVerdict, len(u.Plan.Limits))}
	if u.lost() {
		v.Outcome = store.Lost
		n := 0
		for i, l := range u.Plan.Limits {
			if l.Scope == quota.ScopeGlobal {
				v.Limits[i].Counter = u.counters[n].Value.(*usageCounter).Counter
				n++
			}
		}
		return v
	}
	if u.elsewhen() {
		v.Outcome = store.Elsewhen
		u.counted(v.Limits)
		for i := range v.Limits {
			v.Limits[i].Gauge = quota.Gauge{}
		}
		return v
	}
	switch u.Op {
	case store.OpReserve:
		if u.reserved() != nil {
			return store.Verdict{Outcome: store.Taken, StoreUS: u.now}
		}
	case store.OpSettle:
		if done, charges := u.settle(); !charges {
			return done
		}
	case store.OpRefund:
		u.refund()
	}
	if u.ceilings, u.from = u.Ceilings, make([]int64, len(u.Plan.Limits)); u.Bounds != nil {
		u.lower(v.Limits)
	}
	if u.Op == store.OpSettle && !u.covered(u.reservation) {
		u.reservation.Released = false
	}
	limits := u.windows()
	past := u.Op == store.OpReport || u.Op == store.OpSettle // the limits, if need be
	writes := past || u.Op == store.OpCheck || u.Op == store.OpReserve && u.Cost > 0
	for i, l := range limits {
		k := &u.keys[u.Plan.KeyOf[i]]
		lv := &v.Limits[i]
		lv.Remaining, lv.WaitUS = k.judge(l, u.from[i], u.ceilings[i])
		if past && u.Bounds != nil && l.MaxOvershoot > 0 {
			lv.Over = min(k.sum, max(0, k.used(l, u.from[i])+k.held()+k.sum-u.ceilings[i]))
		}
		if _, held := u.Share(u.Plan.KeyOf[i]); u.Op == store.OpReserve && held > 0 && k.holds.full() {
			v.Hold.TooMany = true
			if lv.WaitUS >= 0 {
				lv.WaitUS = max(lv.WaitUS, k.holds.ends(1), 1)
			}
		}
		switch {
		case u.Op == store.OpRefund:
			lv.WaitUS = 0
		case lv.WaitUS != 0:
			v.Outcome = store.Denied
		}
	}
	charged := past || writes && v.Outcome == store.Admitted
	switch {
	case charged && !u.hasRoom(), charged && !u.charge():
		return store.Verdict{StoreUS: u.now, Err: &store.Error{Reason: quota.ReasonRedisRefused, Err: errFull}}
	case charged:
		v.Outcome = store.Admitted
		if u.Op == store.OpSettle {
			v.Outcome = store.Settled
		}
		if u.reservation != nil {
			v.Hold = u.reservation.HoldVerdict
		}
	case writes && !u.unknown:
		for i := range u.Keys { // a denial may be the first to see a step of the clock
			u.keys[i].offset = u.keys[i].clock.Offset
		}
	}
	if writes && !u.unknown {
		u.popAll()
	}
	for i, l := range limits {
		lv, k := &v.Limits[i], &u.keys[u.Plan.KeyOf[i]]
		if charged {
			lv.Remaining, lv.WaitUS = max(0, lv.Remaining-k.sum), 0
			if u.Costs != nil { // equal keys after this one are charged too
				lv.Remaining = max(0, u.ceilings[i]-k.held()-k.used(l, u.from[i]))
			}
		} else if l.Scope == quota.ScopeGlobal {
			lv.Over = max(0, min(k.used(l, u.from[i]), l.Units)-(u.ceilings[i]-k.held()))
		}
		lv.ResetUS = k.reset(l, u.from[i])
		if k.holds != nil {
			lv.Held, lv.ResetUS = k.holds.held, max(lv.ResetUS, k.holds.reset())
		}
	}
	if writes && !u.unknown {
		u.noteGauges()
	}
	u.counted(v.Limits)
	if charged && u.record != nil {
		u.remember(&store.Admission{Plan: cmp.Or(u.Answers, u.Plan), Ceilings: u.ceilings, Limits: v.Limits, Hold: v.Hold, Own: true})
	}
	return v
}

// lost reports whether a ceiling rests on what a counter does not hold.
func (u *call) lost() bool {
	lost, n := false, 0
	for place, l := range u.Plan.Limits {
		if u.Known == nil || l.Scope != quota.ScopeGlobal {
			continue
		}
		i := n
		n++
		e := u.counters[i]
		c := e.Value.(*usageCounter).Counter
		if c.Holds(u.Known[i]) {
			continue
		}
		lost = true
		if e.Ends != 0 && quota.SameKey(c.Generation, u.Known[i].Generation) { // it went back: it begins another generation
			u.shard.Drop(u.names[i])
			e.Value = &usageCounter{}
			bound := l.MaxOvershoot > 0 && u.Bounds != nil
			if at := u.Plan.KeyOf[place]; l.Calendar != nil && !bound && u.keys[at].entry.Ends != 0 {
				u.shard.Drop(u.Keys[at]) // all that it had counts as lost, and would count here once more until the period ends
			}
		}
	}
	return lost
}

// elsewhen reports whether a ceiling is for another period than counts.
func (u *call) elsewhen() bool {
	n := 0
	for i, l := range u.Plan.Limits {
		if u.Periods == nil || l.Scope != quota.ScopeGlobal || l.Calendar == nil {
			continue
		}
		k := u.keys[u.Plan.KeyOf[i]]
		if named := u.Periods[n]; named != 0 && named != k.periodsNow.Count(k.older).Number {
			return true
		}
		n++
	}
	return false
}

// period is the one that counts for a limit with a calendar; nil for any other.
func (u *call) period(i int) *quota.PeriodUnits {
	if u.Plan.Limits[i].Calendar == nil {
		return nil
	}
	k := &u.keys[u.Plan.KeyOf[i]]
	return k.periodsNow.Count(k.older)
}

// counted puts what the counters hold into the verdicts of their limits.
func (u *call) counted(limits []store.LimitVerdict) {
	n := 0
	for i, l := range u.Plan.Limits {
		if l.Scope == quota.ScopeGlobal && u.counters != nil {
			c := u.counters[n].Value.(*usageCounter)
			limits[i].Counter, limits[i].Gauge = c.Counter, c.gauge
			if now := u.period(i); now != nil {
				limits[i].Counter = c.of(now)
			}
			n++
		}
	}
}

// loansMargin is how much longer than they can matter loans are kept, µs.
const loansMargin = 60_000_000

// bound is that of the n-th bounded limit, the i-th of the plan: of a calendar's limit for the period that counts.
func (u *call) bound(i, n int) quota.Bound {
	if now := u.period(i); now != nil {
		return u.Bounds[n].In(now.Number)
	}
	return u.Bounds[n]
}

// book is the loans under a limit with a bound, the i-th of the plan, which has the given counter. Its entry is kept by keepBook.
func (u *call) book(i int, bound quota.Bound, counter int) (b loan.Book, name string, e *entry) {
	l := u.Plan.Limits[i]
	b = loan.Book{Terms: loan.TermsOfLimit(l), Bound: bound.At(u.now)}
	if now := u.period(i); now != nil {
		b.Period, b.Begun = quota.PeriodUnits{Number: now.Number, End: now.End}, u.keys[u.Plan.KeyOf[i]].older
	}
	name = string(store.AppendLoansKey(nil, &u.Counters[counter]))
	if e = u.shard.Get(name, u.now); e != nil {
		b.State = *e.Value.(*loan.State)
	}
	return b, name, e
}

// keepBook is false where there is no room for loans that are new.
func (u *call) keepBook(b *loan.Book, name string, e *entry) bool {
	switch {
	case b.Empty() && b.Recall == 0:
		if e != nil {
			u.shard.Drop(name)
		}
		return true
	case e == nil && !u.shard.Take(1, u.now):
		return false
	case e == nil:
		e = &entry{}
	}
	e.Value = &b.State
	last := b.RecallUntil
	for _, l := range slices.Concat(b.Lent, b.Held) {
		last = max(last, l.Until)
	}
	u.keep(name, e, last-u.now+b.Terms.Keep()+loansMargin)
	return true
}

// windows are the limits of the call, bounded ones with windows by this store's clock where that is fast.
func (u *call) windows() []*quota.Limit {
	limits, n := u.Plan.Limits, 0
	if u.Bounds == nil || u.Bounds[0].FastPPM == 0 { // one store, one clock
		return limits
	}
	limits = slices.Clone(limits)
	for i, l := range limits {
		if l.MaxOvershoot > 0 {
			longer := *l
			longer.Window = time.Duration(u.Bounds[n].WindowUS(l)) * time.Microsecond
			limits[i], n = &longer, n+1
		}
	}
	return limits
}

// lower brings the ceilings of bounded limits down to what their bounds leave.
func (u *call) lower(limits []store.LimitVerdict) {
	u.ceilings = slices.Clone(u.Ceilings)
	n, counter := 0, 0
	for i, l := range u.Plan.Limits {
		if l.MaxOvershoot > 0 {
			bound := u.bound(i, n)
			if us := bound.Nearest(u.now); us != u.now {
				u.time = us
			}
			if bound.At(u.now).Epoch == 0 {
				u.unknown = true
			} else {
				b, name, e := u.book(i, bound, counter)
				if limits[i].Bounded = b.Room(u.now, 0); e != nil {
					u.keepBook(&b, name, e)
				}
				if u.epoch = b.Bound.Epoch; b.Terms.MaxTTL > 0 {
					u.allows = min(u.allows, b.MaxTTL(u.now))
				}
			}
			u.ceilings[i], u.from[i] = min(u.ceilings[i], limits[i].Bounded), bound.CountsFrom(u.now)
			n++
		}
		if l.Scope == quota.ScopeGlobal {
			counter++
		}
	}
}

var errNoEpoch = fmt.Errorf("%w: the epoch of the region is not known", store.ErrPartition)

// lend carries out the operations on loans of a call.
func (u *call) lend() store.Verdict {
	bound := u.bound(0, 0)
	if bound.At(u.now).Epoch == 0 {
		return store.Verdict{StoreUS: u.now, Err: errNoEpoch}
	}
	b, name, e := u.book(0, bound, 0)
	b.Holds = u.keys[0].open(u.now)
	used := u.keys[0].used(u.windows()[0], bound.CountsFrom(u.now)) + b.Holds.Units
	b.Lent, b.Held = slices.Clone(b.Lent), slices.Clone(b.Held)
	b.Ceiling(u.now) // drops what is over
	reply := &store.Loans{Used: used, Period: b.Period, Results: make([]store.LoanResult, len(u.Loans))}
	for i := range u.Loans {
		o, r := &u.Loans[i], &reply.Results[i]
		switch o.Kind {
		case store.LoanLend:
			r.Grant, _ = b.Lend(u.now, used, o.Units, o.Request)
		case store.LoanAccept:
			r.Changed = b.Accept(u.now, o.Grant)
		case store.LoanReturn:
			r.Back = b.Return(u.now, used, o.Units, o.Peer, o.ID)
		case store.LoanReturned:
			b.Returned(u.now, o.Peer, o.ID, o.Units)
		case store.LoanRecall:
			b.SetRecall(u.now, o.Units, o.Until)
		}
	}
	b.Ceiling(u.now)
	if !u.keepBook(&b, name, e) {
		return store.Verdict{StoreUS: u.now, Err: &store.Error{Reason: quota.ReasonRedisRefused, Err: errFull}}
	}
	reply.State = b.State
	reply.State.Lent, reply.State.Held = slices.Clone(b.Lent), slices.Clone(b.Held)
	return store.Verdict{Outcome: store.Admitted, StoreUS: u.now, Loans: reply}
}

// replay is the verdict of an earlier admission. The plan may have changed since: as in
// Redis, limits that the record lacks are zero, and those that are gone are left out.
func (u *call) replay(r *store.Admission) store.Verdict {
	if r.Print != u.Print {
		return store.Verdict{Outcome: store.Reused, StoreUS: u.now}
	}
	limits := make([]store.LimitVerdict, len(u.Plan.Limits)) // the caller's, who uses them again
	copy(limits, r.Limits)
	return store.Verdict{Outcome: store.Replayed, StoreUS: u.now, Limits: limits, Hold: r.Hold, Earlier: r}
}

// hasRoom is whether the admission of the call can be kept, or need not be.
func (u *call) hasRoom() bool {
	if u.record == nil || u.store.coarse || u.record.Get(u.Record, u.now) != nil {
		return true
	}
	if !u.record.Take(1, u.now) {
		return false
	}
	u.record.Give(1)
	return true
}

// remember keeps an admission of the call, if there is room.
func (u *call) remember(a *store.Admission) {
	a.Record, a.Key, a.Print, a.Policy, a.US = u.Record, u.Keys[0], u.Print, u.Policy, u.now
	a.Ceilings, a.Limits = slices.Clone(a.Ceilings), slices.Clone(a.Limits)
	e := u.record.Hold(u.Record, u.now)
	if e == nil {
		return
	}
	e.Value, e.Ends = a, u.now+idempotencyUS
	if u.store.keep {
		e.Ends = math.MaxInt64
	}
}

// load finds the states of the call's keys and counters, or makes empty ones.
func (u *call) load() {
	u.keys = make([]keyed, len(u.Keys))
	for i, name := range u.Keys {
		plan, k := &u.Plan.Keys[i], &u.keys[i]
		charged, held := u.Share(i)
		k.charged, k.sum = charged, charged+held
		if before := u.before(i); before >= 0 {
			k.keyState, k.entry = u.keys[before].keyState, u.keys[before].entry
			k.sum += u.keys[before].sum
			continue
		}
		if k.entry = u.find(name, charged); k.entry.Value == nil {
			k.entry.Value = &keyState{kind: plan.Kind, window: plan.Limits[0].WindowUS()}
		}
		k.keyState = k.entry.Value.(*keyState)
		k.at(plan, u.now)
		if plan.Holds {
			k.holds = u.set(store.HoldsKey(name))
		}
	}
	for i, l := range u.Plan.Limits {
		if l.Scope != quota.ScopeGlobal || u.Counters == nil {
			continue
		}
		name := string(store.AppendCounterKey(nil, &u.Counters[len(u.counters)]))
		if u.Costs != nil {
			if before := slices.Index(u.names, name); before >= 0 {
				u.names, u.counters = append(u.names, name), append(u.counters, u.counters[before])
				continue
			}
		}
		charged, held := u.Share(u.Plan.KeyOf[i])
		e := u.find(name, charged+held)
		if e.Value == nil {
			e.Value = &usageCounter{}
		}
		u.names, u.counters = append(u.names, name), append(u.counters, e)
	}
}

// before is the place of the latest key before the i-th that is equal to it, -1 for none.
func (u *call) before(i int) int {
	for n := i - 1; n >= 0 && u.Costs != nil; n-- {
		if u.Keys[n] == u.Keys[i] {
			return n
		}
	}
	return -1
}

// find returns the entry of a name, or one that the store does not have yet, and needs for what is charged.
func (u *call) find(name string, charged int64) *entry {
	if e := u.shard.Get(name, u.now); e != nil {
		return e
	}
	if charged > 0 {
		u.missing++
	}
	return &entry{}
}

// keep has an entry live for so long (µs) from now on.
func (u *call) keep(name string, e *entry, lasts int64) {
	if e.Ends == 0 {
		u.shard.Put(name, e)
	}
	if e.Ends = u.now + lasts; u.store.keep {
		e.Ends = math.MaxInt64
	}
}

// charge adds what the call charges to its keys and counters, and makes or removes its holds; false if there is no room for
// entries that are new.
func (u *call) charge() bool {
	if missing := u.missing + u.missingHolds(); missing > 0 && !u.shard.Take(missing, u.now) {
		return false
	}
	for i, name := range u.Keys {
		plan, k := &u.Plan.Keys[i], &u.keys[i]
		if k.charged == 0 {
			continue
		}
		k.charge(plan, k.charged, u.time, u.store.coarse)
		lasts := k.lasts(plan)
		if k.kind == 'l' { // a former plan may need it for longer
			lasts = max(lasts, k.entry.Ends-u.now)
		}
		u.keep(name, k.entry, lasts)
	}
	n := 0
	for i, l := range u.Plan.Limits {
		if l.Scope == quota.ScopeGlobal && u.counters != nil {
			key := u.Plan.KeyOf[i]
			c := u.counters[n].Value.(*usageCounter)
			if charged, held := u.Share(key); charged > 0 || held > 0 && c.Generation == 0 {
				c.add(l, u.period(i), u.now, charged)
				u.keepCounter(n, key)
			}
			n++
		}
	}
	switch {
	case u.Op == store.OpReserve:
		u.hold()
	case u.reservation != nil:
		u.release()
	}
	return true
}

// refund takes units back from the keys of the call.
func (u *call) refund() {
	for i, name := range u.Keys {
		plan, k := &u.Plan.Keys[i], &u.keys[i]
		if k.entry.Ends == 0 {
			continue
		}
		switch k.refund(plan, u.Refund(i)); {
		case k.newest == 0:
			u.shard.Drop(name)
			k.entry.Ends = 0
		case k.kind != 'l':
			u.keep(name, k.entry, k.lasts(plan))
		}
		k.at(plan, u.now)
	}
}
