package memstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/base/expiring"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// usageStart is where the clock of these tests begins, µs.
const usageStart = int64(1_795_198_405_260_197)

// memoryClock is a Store whose clock the test moves by hand.
type memoryClock struct {
	*Store
	us int64
}

func newMemoryClock(o Options) *memoryClock {
	m := &memoryClock{us: usageStart}
	o.Now = func() int64 { return m.us }
	m.Store = New(o)
	return m
}

func (m *memoryClock) decideOne(t *testing.T, c store.Call) store.Verdict {
	t.Helper()
	var v [1]store.Verdict
	m.Decide(context.Background(), []store.Call{c}, v[:])
	return v[0]
}

// A record keeps its verdict, whatever the callers do with those that they were given.
func TestMemoryRecordsAreItsOwn(t *testing.T) {
	m := newMemoryClock(Options{})
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "global", Units: 5, Window: time.Hour, Scope: quota.ScopeGlobal}})
	c := limitertest.CallOf(plan, "acme", 1)
	c.Counters, c.Record, c.Print = plan.AppendCounters(nil, c.Keys, "acme", "standard"), "rl:{acme}:i:k", "p"
	first := m.decideOne(t, c)
	want := first.Limits[0]
	for _, v := range []store.Verdict{first, m.decideOne(t, c), m.decideOne(t, c)} {
		if v.Limits[0] != want {
			t.Errorf("replayed %+v, want %+v", v.Limits[0], want)
		}
		v.Limits[0] = store.LimitVerdict{Remaining: 99}
	}
}

func TestMemoryKeepsOnlyCharges(t *testing.T) {
	m := newMemoryClock(Options{})
	peek, denial := limitertest.OneCall("acme", 5, 1), limitertest.OneCall("acme", 5, 6)
	peek.Op = store.OpPeek
	m.decideOne(t, peek)
	m.decideOne(t, denial)
	if keys, records, _ := m.held(t); keys != 0 || records != 0 {
		t.Errorf("a peek and a denial left %d keys and %d records", keys, records)
	}
}

// What has expired is as good as absent, whether or not it was swept: in a Redis it
// would be gone, and stay so when the clock steps back.
func TestMemoryForgetsWhatHasExpired(t *testing.T) {
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "minute", Units: 5, Window: time.Minute, Scope: quota.ScopeGlobal}})
	check := limitertest.CallOf(plan, "acme", 5)
	check.Counters = plan.AppendCounters(nil, check.Keys, "acme", "standard")
	peek := check
	peek.Op = store.OpPeek
	lives := (3 * time.Minute).Microseconds()
	for _, row := range []struct {
		name    string
		idle    int64 // µs until the next call
		counted int64 // units of the counter in its verdict
		left    int64 // remaining once the clock has stepped back to the beginning
	}{
		{"a moment before", lives - 1, 5, 0},
		{"then", lives, 0, 5},
		{"an hour later", 3_600_000_000, 0, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newMemoryClock(Options{})
			m.decideOne(t, check)
			m.us += row.idle
			if got := m.decideOne(t, peek).Limits[0].Counter.Units; got != row.counted {
				t.Errorf("the counter has %d units, want %d", got, row.counted)
			}
			m.us = usageStart
			if got := m.decideOne(t, peek).Limits[0].Remaining; got != row.left {
				t.Errorf("%d remain once the clock has stepped back, want %d", got, row.left)
			}
		})
	}
}

// A caller reads the clock under the lock: one that was descheduled in between would see
// a clock behind the partition's, which is taken for a step back.
func TestMemoryReadsTheClockUnderTheLock(t *testing.T) {
	c := limitertest.OneCall("acme", 5, 1)
	var m *Store
	m = New(Options{Now: func() int64 {
		if s := m.shard(c.Keys[0]); s.TryLock() {
			s.Unlock()
			t.Error("the clock was read without the lock")
		}
		return usageStart
	}})
	var v [1]store.Verdict
	if m.Decide(context.Background(), []store.Call{c}, v[:]); v[0].Outcome != store.Admitted {
		t.Error(v)
	}
	m.Record(&c, nil)
}

// held counts what is kept by kind; it fails if that is not what is counted.
func (m *memoryClock) held(t *testing.T) (keys, records, counters int) {
	t.Helper()
	for i := range uint64(expiring.Shards) {
		for _, e := range m.entries.Shard(i).All() {
			switch e.Value.(type) {
			case *keyState:
				keys++
			case *usageCounter:
				counters++
			}
		}
	}
	for i := range uint64(expiring.Shards) {
		for range m.records.Shard(i).All() {
			records++
		}
	}
	if size := m.records.Size(); records != size {
		t.Fatalf("%d records are held, and %d counted", records, size)
	}
	if size := m.entries.Size(); keys+counters != size {
		t.Fatalf("%d partitions, %d records and %d counters are held, %d are counted", keys, records, counters, size)
	}
	return keys, records, counters
}

// Newcomers beyond the bound are refused, and nobody who is there loses a place;
// when some expire there is room again.
func TestMemoryBounded(t *testing.T) {
	m := newMemoryClock(Options{Partitions: 640})
	refused := 0
	for i := range 5_000 {
		v := m.decideOne(t, limitertest.OneCall(fmt.Sprint("t", i), 5, 1))
		if v.Err == nil {
			continue
		}
		refused++
		var e *store.Error
		if !errors.As(v.Err, &e) || e.Ambiguous || e.Reason != quota.ReasonRedisRefused {
			t.Fatalf("refused with %v, want redis_refused and nothing charged", v.Err)
		}
	}
	if keys, _, _ := m.held(t); keys > 640 || keys != 5_000-refused {
		t.Errorf("%d partitions are held after %d of 5000 were refused, want at most 640", keys, refused)
	}
	if v := m.decideOne(t, limitertest.OneCall("t0", 5, 1)); v.Err != nil || v.Limits[0].Remaining != 3 {
		t.Errorf("the first comer: %+v, want 3 remaining", v)
	}
	m.us += (3 * time.Minute).Microseconds() // all but t0 expire, t0 has just
	for i := range 5_000 {
		m.decideOne(t, limitertest.OneCall(fmt.Sprint("later", i%300), 5, 1))
	}
	if v := m.decideOne(t, limitertest.OneCall("later7", 5, 1)); v.Err != nil {
		t.Errorf("no room after all had expired: %v", v.Err)
	}
}

// What is counted as held is what is held, whatever drops it: a sweep, a reset, or a
// question that finds it expired. Partitions and usage counters share one bound, those of the shared
// partition among them, records of Idempotency-Keys have their own, and a call that does not find
// room for all that it brings keeps nothing of it.
func TestMemoryCountsWhatItHolds(t *testing.T) {
	t.Parallel() // it measures no time
	const most = 300
	random := rand.New(rand.NewPCG(5, 8))
	plan := store.NewKeyPlan([]*quota.Limit{
		{Name: "minute", Units: 5, Window: time.Minute, Scope: quota.ScopeGlobal, By: []string{"ip"}},
		{Name: "burst", Units: 50, Window: time.Second, Algorithm: quota.GCRA},
	})
	const mostRecords = 20
	m := newMemoryClock(Options{Partitions: most, Records: mostRecords})
	refused, full, fullRecords := 0, 0, 0
	for step := range 40_000 {
		tenant := fmt.Sprint("t", random.IntN(20))
		switch random.IntN(200) {
		case 0:
			m.us += random.Int64N((3 * time.Minute).Microseconds())
		case 1:
			if err := m.ResetAll(context.Background(), tenant, 0); err != nil {
				t.Fatal(err)
			}
		default:
			partition := tenant
			if random.IntN(4) == 0 {
				partition = ""
			}
			dims := quota.Dimensions{{Name: "ip", Value: fmt.Sprint(random.IntN(40))}}
			c := store.Call{Plan: plan, Op: []store.Op{store.OpCheck, store.OpPeek, store.OpReport}[random.IntN(3)], Cost: 1, Ceilings: plan.Capacities}
			c.Keys = plan.AppendKeys(nil, partition, "standard", dims)
			c.Counters = plan.AppendCounters(nil, c.Keys, partition, "standard")
			if random.IntN(4) == 0 {
				c.Record, c.Print = store.RecordKey(tenant, fmt.Sprint("k", random.IntN(9))), "p"
			}
			before := m.entries.Size() + m.records.Size()
			if v := m.decideOne(t, c); v.Err != nil {
				refused++
				if after := m.entries.Size() + m.records.Size(); after > before {
					t.Fatalf("step %d: a refused call left %d entries", step, after-before)
				}
			}
		}
		keys, records, counters := m.held(t)
		if keys+counters > most || records > mostRecords {
			t.Fatalf("step %d: %d partitions and %d counters are held, want at most %d; %d records, want %d", step, keys, counters, most, records, mostRecords)
		}
		if keys+counters > most-4 {
			full++
		}
		if records == mostRecords {
			fullRecords++
		}
	}
	if min(refused, full, fullRecords) < 100 {
		t.Errorf("%d calls were refused, the store was full at %d steps and of records at %d: this does not test the bounds", refused, full, fullRecords)
	}
}

// An admission with an Idempotency-Key is replayed whichever partition a retry is counted
// in, and is reset with its tenant.
func TestMemoryRecordOfTheSharedPartition(t *testing.T) {
	m := newMemoryClock(Options{})
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "minute", Units: 10, Window: time.Minute}})
	in := func(partition string) byte {
		c := limitertest.CallOf(plan, partition, 4)
		c.Record, c.Print = store.RecordKey("acme", "k"), "p"
		return m.decideOne(t, c).Outcome
	}
	if a, b, c := in(""), in("acme"), in(""); a != store.Admitted || b != store.Replayed || c != store.Replayed {
		t.Errorf("in the shared partition, its own, the shared one again: %c %c %c, want a m m", a, b, c)
	}
	if err := m.ResetAll(context.Background(), "acme", 0); err != nil {
		t.Fatal(err)
	}
	if got := in("acme"); got != store.Admitted {
		t.Errorf("after a reset of the tenant: %c", got)
	}
}

// A log lives on as long as a former limit needs it, when a shorter one has charged it since.
func TestLogOutlivesALoweredLimit(t *testing.T) {
	us := limitertest.Epoch
	s := New(Options{Now: func() int64 { return us }})
	ask := func(units int64, window time.Duration, cost int64) byte {
		c := limitertest.Ask(&quota.Limit{Name: "l", Units: units, Window: window}).Call("acme", store.OpCheck, cost, nil)
		v, err := limitertest.Decide(s, c)
		if err != nil {
			t.Fatal(err)
		}
		return v[0].Outcome
	}
	ask(100, time.Minute, 100)
	us += 2_000_000
	ask(10, time.Second, 1)
	us += 50_000_000
	if got := ask(100, time.Minute, 1); got != store.Denied {
		t.Errorf("100 of 100 used 52 s ago, and a check gets %c", got)
	}
}

// What another store has admitted is replayed until it is settled that this one has to forget it.
func TestRecordIsSettled(t *testing.T) {
	m, c := New(Options{}), limitertest.OneCall("acme", 5, 1)
	c.Record, c.Print = store.RecordKey("acme", "k"), "p"
	m.Record(&c, &store.Admission{Plan: c.Plan, Limits: make([]store.LimitVerdict, 1), Own: true})
	own := m.Earlier(&c)
	if own == nil || !own.Own || own.Print != "p" {
		t.Fatalf("recorded %+v", own)
	}
	m.Settle(own, false)
	known := m.Earlier(&c)
	if known == nil || known.Own {
		t.Fatalf("once the other store knows it: %+v", known)
	}
	if m.Settle(own, true); m.Earlier(&c) != known {
		t.Error("what was replaced meanwhile is forgotten")
	}
	if m.Settle(known, true); m.Earlier(&c) != nil {
		t.Error("it is not forgotten")
	}
}

// A log in use holds what its window does, whatever its limit; that of a bounded one as long as it may get.
func TestMemoryLogForgets(t *testing.T) {
	const inside = 100
	for _, row := range []struct {
		overshoot quota.Overshoot
		most      int
	}{{0, inside}, {quota.Strict, inside * 104 / 100}} {
		m := newMemoryClock(Options{})
		plan := store.NewKeyPlan([]*quota.Limit{{Name: "l", Units: 1000, Window: time.Second, Scope: quota.ScopeGlobal, MaxOvershoot: row.overshoot}})
		c := limitertest.CallOf(plan, "acme", 1)
		c.Op, c.Counters = store.OpReport, plan.AppendCounters(nil, c.Keys, "acme", "standard")
		for range 12 * inside {
			m.us += time.Second.Microseconds() / inside
			if row.overshoot != 0 {
				c.Bounds = []quota.Bound{{Share: 1000, Epoch: 1, ToUS: m.us}}
			}
			if v := m.decideOne(t, c); v.Err != nil {
				t.Fatal(v.Err)
			}
		}
		if got := len(m.keyOf(c).log); got != row.most {
			t.Errorf("%+v: the log has %d entries", row, got)
		}
	}
}
