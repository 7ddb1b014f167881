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

	"github.com/regiond/regiond/internal/expiring"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// Store is a store.Store in memory. Safe for concurrent use.
type Store struct {
	now     func() int64
	passed  func() time.Duration
	watch   store.Watch
	coarse  bool
	keep    bool
	hash    maphash.Seed
	entries *expiring.Map[string, any] // *keyState, *usageCounter, *loan.State or *admitted, by Redis's names
}

// shard has all of a tenant, but for what the shared partition admits with an
// Idempotency-Key: a call locks two shards at most.
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
	// DefaultPartitions. Usage counters and admissions with an Idempotency-Key count
	// like a partition each. What needs another is refused until some expire, never others evicted.
	Partitions int
	// Coarse bounds a partition's log: what admits by it errs towards denying.
	Coarse bool
	// keep is for tests that move Now past every expiry and back, where a Redis
	// whose own clock stands still expires nothing.
	keep bool
	// passed is the monotonic clock of a test; nil stands still.
	passed func() time.Duration
}

// admitted is an admission with an Idempotency-Key.
type admitted struct {
	us     int64
	print  string
	limits []store.LimitVerdict
}

// New returns an empty store.
func New(o Options) *Store {
	if o.Now == nil {
		start := time.Now()
		base := start.UnixMicro()
		o.Now = func() int64 { return base + time.Since(start).Microseconds() }
	}
	if o.passed == nil {
		o.passed = func() time.Duration { return 0 }
	}
	return &Store{
		now: o.Now, passed: o.passed, coarse: o.Coarse, keep: o.keep, hash: maphash.MakeSeed(),
		entries: expiring.New[string, any](cmp.Or(o.Partitions, DefaultPartitions)),
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

// Record charges a call that another store has admitted. Without room it is not recorded:
// then its partition is refused while the other store is away.
func (m *Store) Record(c *store.Call) {
	u := m.lock(c)
	u.load()
	u.charge()
	u.unlock()
}

// Reset implements Store.
func (m *Store) Reset(ctx context.Context, tenant string) error { return m.ResetAll(ctx, tenant, 0) }

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
	return nil
}

// TimeUS reads the store's clock, microseconds since the epoch.
func (m *Store) TimeUS(context.Context) (int64, error) { return m.now(), nil }

// shard returns the shard of a name's tenant: the text up to the closing brace.
func (m *Store) shard(name string) *shard { return m.entries.Shard(m.place(name)) }

func (m *Store) place(name string) uint64 {
	return maphash.String(m.hash, name[:strings.IndexByte(name, '}')+1]) % expiring.Shards
}

// call is a call at work, with the shards locked that it needs.
type call struct {
	*store.Call
	store         *Store
	shard, record *shard // the same, but for a record of the shared partition
	now           int64
	keys          [quota.MaxLimits]struct {
		*keyState
		entry *entry
	}
	counters []*entry
	names    []string // of the counters
	ceilings []int64  // those of the call, lowered to what bounds leave
	missing  int      // how many entries are not in the store
}

// lock locks the shards of a call, always in one order, and reads the clock then: read
// before, it would be behind that of a call which got the lock first.
func (m *Store) lock(c *store.Call) call {
	i := m.place(c.Keys[0])
	j := i
	if c.Record != "" {
		j = m.place(c.Record)
	}
	m.entries.Shard(min(i, j)).Lock()
	if i != j {
		m.entries.Shard(max(i, j)).Lock()
	}
	return call{Call: c, store: m, shard: m.entries.Shard(i), record: m.entries.Shard(j), now: m.now()}
}

func (u *call) unlock() {
	u.shard.Unlock()
	if u.record != u.shard {
		u.record.Unlock()
	}
}

var errFull = errors.New("the in-memory store holds as many partitions as it may")

func (u *call) decide() store.Verdict {
	var record *entry
	if u.Record != "" {
		record = u.find(u.record, u.Record)
		if r, ok := record.Value.(*admitted); ok && u.now < r.us+idempotencyUS {
			return u.replay(r)
		}
	}
	u.load()
	if u.Op == store.OpLoans {
		return u.lend()
	}
	v := store.Verdict{Outcome: store.Admitted, StoreUS: u.now, Limits: make([]store.LimitVerdict, len(u.Plan.Limits))}
	if u.lost() {
		v.Outcome = store.Lost
		u.counted(v.Limits)
		return v
	}
	if u.ceilings = u.Ceilings; u.Bounds != nil {
		u.lower(v.Limits)
	}
	for i, l := range u.Plan.Limits {
		v.Limits[i].Remaining, v.Limits[i].WaitUS = u.keys[u.Plan.KeyOf[i]].judge(l, u.ceilings[i], u.Cost)
		if u.Op == store.OpReport && u.Bounds != nil && l.MaxOvershoot > 0 {
			v.Limits[i].Over = min(u.Cost, max(0, u.keys[u.Plan.KeyOf[i]].used(l)+u.Cost-u.ceilings[i]))
		}
		if v.Limits[i].WaitUS != 0 {
			v.Outcome = store.Denied
		}
	}
	charged := u.Op == store.OpReport || u.Op == store.OpCheck && v.Outcome == store.Admitted
	switch {
	case charged && !u.charge():
		return store.Verdict{StoreUS: u.now, Err: &store.Error{Reason: quota.ReasonRedisRefused, Err: errFull}}
	case charged:
		v.Outcome = store.Admitted
	case u.Op == store.OpCheck:
		for i := range u.Keys { // a denial may be the first to see a step of the clock
			u.keys[i].offset = u.keys[i].clock.Offset
		}
	}
	for i, l := range u.Plan.Limits {
		lv, k := &v.Limits[i], u.keys[u.Plan.KeyOf[i]].keyState
		if charged {
			lv.Remaining, lv.WaitUS = max(0, lv.Remaining-u.Cost), 0
		} else if l.Scope == quota.ScopeGlobal {
			lv.Over = max(0, min(k.used(l), l.Units)-u.ceilings[i])
		}
		lv.ResetUS = k.reset(l)
	}
	u.counted(v.Limits)
	if charged && record != nil {
		record.Value = &admitted{us: u.now, print: u.Print, limits: slices.Clone(v.Limits)}
		u.keep(u.record, u.Record, record, 2*idempotencyUS)
	}
	return v
}

// lost reports whether a ceiling rests on what a counter does not hold.
func (u *call) lost() bool {
	lost := false
	for i := range u.Known {
		e := u.counters[i]
		c := e.Value.(*usageCounter).Counter
		if c.Holds(u.Known[i]) {
			continue
		}
		lost = true
		if e.Ends != 0 && quota.SameKey(c.Generation, u.Known[i].Generation) { // it went back: it begins another generation
			u.shard.Drop(u.names[i])
			e.Value = &usageCounter{}
		}
	}
	return lost
}

// counted puts what the counters hold into the verdicts of their limits.
func (u *call) counted(limits []store.LimitVerdict) {
	n := 0
	for i, l := range u.Plan.Limits {
		if l.Scope == quota.ScopeGlobal && u.counters != nil {
			limits[i].Counter = u.counters[n].Value.(*usageCounter).Counter
			n++
		}
	}
}

// loansMargin is how much longer than they can matter loans are kept, µs.
const loansMargin = 60_000_000

// book is the loans under the n-th bounded limit, which has the given counter. Its entry is kept by keepBook.
func (u *call) book(l *quota.Limit, n, counter int) (b loan.Book, name string, e *entry) {
	bound, terms := u.store.watch.Bound(u.Bounds[n], u.store.passed()), loan.TermsOf(l.WindowUS())
	b = loan.Book{Terms: terms, Share: bound.Share, Store: loan.Store{Epoch: bound.Epoch}}
	if u.store.watch.Saw(bound.Epoch, u.now, u.store.passed()); bound.OpenFromUS > 0 {
		b.Store.Lost = bound.OpenFromUS - terms.Keep()
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
	u.keep(u.shard, name, e, last-u.now+b.Terms.Keep()+loansMargin)
	return true
}

// lower brings the ceilings of bounded limits down to what their bounds leave.
func (u *call) lower(limits []store.LimitVerdict) {
	u.ceilings = slices.Clone(u.Ceilings)
	n, counter := 0, 0
	for i, l := range u.Plan.Limits {
		if l.MaxOvershoot > 0 {
			if u.Bounds[n].Epoch != 0 {
				b, name, e := u.book(l, n, counter)
				if limits[i].Bounded = b.Room(u.now, 0); e != nil {
					u.keepBook(&b, name, e)
				}
			}
			u.ceilings[i] = min(u.ceilings[i], limits[i].Bounded)
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
	l := u.Plan.Limits[0]
	if u.Bounds[0].Epoch == 0 {
		return store.Verdict{StoreUS: u.now, Err: errNoEpoch}
	}
	used := u.keys[0].used(l)
	b, name, e := u.book(l, 0, 0)
	b.Lent, b.Held = slices.Clone(b.Lent), slices.Clone(b.Held)
	b.Ceiling(u.now) // drops what is over
	reply := &store.Loans{Used: used, Results: make([]store.LoanResult, len(u.Loans))}
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
func (u *call) replay(r *admitted) store.Verdict {
	if r.print != u.Print {
		return store.Verdict{Outcome: store.Reused, StoreUS: u.now}
	}
	limits := make([]store.LimitVerdict, len(u.Plan.Limits)) // the caller's, who uses them again
	copy(limits, r.limits)
	return store.Verdict{Outcome: store.Replayed, StoreUS: u.now, Limits: limits}
}

// load finds the states of the call's keys and counters, or makes empty ones.
func (u *call) load() {
	for i, name := range u.Keys {
		plan, k := &u.Plan.Keys[i], &u.keys[i]
		if k.entry = u.find(u.shard, name); k.entry.Value == nil {
			k.entry.Value = &keyState{kind: plan.Kind, window: plan.Limits[0].WindowUS()}
		}
		k.keyState = k.entry.Value.(*keyState)
		k.at(plan, u.now)
	}
	for i := range u.Counters {
		name := string(store.AppendCounterKey(nil, &u.Counters[i]))
		e := u.find(u.shard, name)
		if e.Value == nil {
			e.Value = &usageCounter{}
		}
		u.names, u.counters = append(u.names, name), append(u.counters, e)
	}
}

// find returns the entry of a name, or one that the store does not have yet.
func (u *call) find(s *shard, name string) *entry {
	if e := s.Get(name, u.now); e != nil {
		return e
	}
	u.missing++
	return &entry{}
}

// keep has an entry live for so long (µs) from now on.
func (u *call) keep(s *shard, name string, e *entry, lasts int64) {
	if e.Ends == 0 {
		s.Put(name, e)
	}
	if e.Ends = u.now + lasts; u.store.keep {
		e.Ends = math.MaxInt64
	}
}

// charge adds the call's cost to all its keys and counters; false if there is no room for
// those that are new.
func (u *call) charge() bool {
	if u.missing > 0 && !u.shard.Take(u.missing, u.now) {
		return false
	}
	for i, name := range u.Keys {
		plan, k := &u.Plan.Keys[i], &u.keys[i]
		k.charge(plan, u.Cost)
		if u.store.coarse {
			k.coarsen(plan.Longest)
		}
		u.keep(u.shard, name, k.entry, k.lasts(plan))
	}
	n := 0
	for i, l := range u.Plan.Limits {
		if l.Scope == quota.ScopeGlobal && u.counters != nil {
			u.counters[n].Value.(*usageCounter).add(l, u.now, u.Cost)
			u.keep(u.shard, u.names[n], u.counters[n], u.Plan.Keys[u.Plan.KeyOf[i]].TTL.Microseconds())
			n++
		}
	}
	return true
}
