package memstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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

// The memory of a flood is swept as it comes, without a goroutine for it.
func TestMemorySweeps(t *testing.T) {
	m := newMemoryClock(Options{})
	for i := range 50_000 {
		c := limitertest.OneCall(fmt.Sprint("t", i), 5, 1)
		if i%4 == 0 {
			c.Record, c.Print = c.Keys[0]+"i:k", "p"
		}
		m.decideOne(t, c)
		m.us += 100_000 // so that about 2200 are live at any time
	}
	if keys, records, _ := m.held(t); keys > 8_000 || records > 4_000 {
		t.Errorf("%d partitions and %d records are held, want little more than the 1800 and 300 alive", keys, records)
	}
}

// What is live is never swept: who has used its limit is denied for all of the
// window, whatever flood comes meanwhile.
func TestMemoryNeverForgetsTheLive(t *testing.T) {
	m := newMemoryClock(Options{})
	const spent, steps = 20, 59
	for i := range spent {
		m.decideOne(t, limitertest.OneCall(fmt.Sprint("spent", i), 5, 5))
	}
	for step := range steps {
		m.us += 1_000_000
		for i := range 200 { // each shard is swept a few times
			m.decideOne(t, limitertest.OneCall(fmt.Sprint("flood", step, ".", i), 5, 1))
		}
		for i := range spent {
			if v := m.decideOne(t, limitertest.OneCall(fmt.Sprint("spent", i), 5, 1)); v.Outcome != store.Denied {
				t.Fatalf("after %d s: tenant %d has used its limit of a minute and gets %+v", step+1, i, v)
			}
		}
	}
	m.us += 1_000_000
	for i := range spent {
		if v := m.decideOne(t, limitertest.OneCall(fmt.Sprint("spent", i), 5, 5)); v.Outcome != store.Admitted {
			t.Errorf("after the window tenant %d gets %+v", i, v)
		}
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

// However callers are scheduled, no window of the store's own time has more than the limit.
func TestMemoryWindowsUnderConcurrency(t *testing.T) {
	const units, window, callers = 3, 20 * time.Millisecond, 16
	m := New(Options{})
	c := limitertest.CallOf(store.NewKeyPlan([]*quota.Limit{{Name: "l", Units: units, Window: window}}), "acme", 1)
	var all [callers][]int64
	var wg sync.WaitGroup
	end := time.Now().Add(time.Second)
	for w := range callers {
		wg.Go(func() {
			var v [1]store.Verdict
			for time.Now().Before(end) {
				if m.Decide(context.Background(), []store.Call{c}, v[:]); v[0].Outcome == store.Admitted {
					all[w] = append(all[w], v[0].StoreUS)
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	stamps := slices.Sorted(slices.Values(slices.Concat(all[:]...)))
	if len(stamps) < units*10 {
		t.Fatalf("only %d admissions", len(stamps))
	}
	for i := units; i < len(stamps); i++ {
		if within := stamps[i] - stamps[i-units]; within < window.Microseconds() {
			t.Fatalf("%d units within %d µs: %v", units+1, within, stamps[i-units:i+1])
		}
	}
}

func TestMemoryConcurrent(t *testing.T) {
	const units, callers = 500, 16
	m := New(Options{})
	var got atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range units / 8 {
				var v [1]store.Verdict
				c := limitertest.OneCall("acme", units, 1)
				if m.Decide(context.Background(), []store.Call{c}, v[:]); v[0].Outcome == store.Admitted {
					got.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got.Load() != units {
		t.Errorf("%d of %d admitted, want exactly %d", got.Load(), callers*(units/8), units)
	}
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

// fromAddress is a check of one of a tenant's many partitions.
func fromAddress(tenant string, n int) store.Call {
	c := limitertest.OneCall(tenant, 5, 1)
	c.Keys = []string{fmt.Sprintf("rl:{%s}:l:standard:ip:%d:", tenant, n)}
	return c
}

// The room is everybody's: one tenant may fill all of it. Once its partitions have
// expired there is room for others, although that tenant does not come again.
func TestMemoryRoomIsShared(t *testing.T) {
	const most = 5_000
	m := newMemoryClock(Options{Partitions: most})
	for i := range most {
		if v := m.decideOne(t, fromAddress("acme", i)); v.Err != nil {
			t.Fatalf("partition %d of %d: %v", i+1, most, v.Err)
		}
	}
	if v := m.decideOne(t, fromAddress("acme", most)); v.Err == nil {
		t.Error("one more than there is room for was admitted")
	}
	if v := m.decideOne(t, fromAddress("acme", 0)); v.Err != nil || v.Limits[0].Remaining != 3 {
		t.Errorf("a partition that is held: %+v, want 3 remaining", v)
	}
	m.us += (3 * time.Minute).Microseconds()
	refused := 0
	for i := range most / 2 {
		if m.decideOne(t, fromAddress(fmt.Sprint("other", i), 0)).Err != nil {
			refused++
		}
	}
	if refused >= expiring.Shards {
		t.Errorf("%d of %d others were refused when all had expired, want fewer than there are shards to look through", refused, most/2)
	}
}

// Callers that arrive at the same time do not pass the bound.
func TestMemoryBoundedConcurrently(t *testing.T) {
	const most, callers = 500, 8
	var us atomic.Int64
	us.Store(usageStart)
	m := New(Options{Now: us.Load, Partitions: most})
	var wg sync.WaitGroup
	for w := range callers {
		wg.Go(func() {
			for i := range 2_000 {
				us.Add(30_000) // a partition lives for 6,000 calls, of 16,000
				var v [1]store.Verdict
				m.Decide(context.Background(), []store.Call{fromAddress(fmt.Sprint("t", w, ".", i%100), i)}, v[:])
			}
		})
	}
	wg.Wait()
	if n, _, _ := (&memoryClock{Store: m}).held(t); n > most || n < most*9/10 {
		t.Errorf("%d partitions are held, want at most %d and hardly less", n, most)
	}
}

// A shard that once held much gets a smaller map, and nothing that is live is lost by that.
func TestMemoryLetsGoOfRoom(t *testing.T) {
	m := newMemoryClock(Options{})
	const much = 10_000
	for i := range much {
		m.decideOne(t, fromAddress("acme", i))
	}
	m.us += (3 * time.Minute).Microseconds()
	live := fromAddress("acme", -1)
	live.Cost = 5
	m.decideOne(t, live)
	live.Cost = 1
	for range 8 * much { // far more often than it takes to sweep them all
		if v := m.decideOne(t, live); v.Outcome != store.Denied {
			t.Fatalf("who has used its limit gets %+v", v)
		}
	}
	if n, _, _ := m.held(t); n != 1 {
		t.Errorf("%d partitions are held, want 1", n)
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
			if err := m.Reset(context.Background(), tenant); err != nil {
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
	if err := m.Reset(context.Background(), "acme"); err != nil {
		t.Fatal(err)
	}
	if got := in("acme"); got != store.Admitted {
		t.Errorf("after a reset of the tenant: %c", got)
	}
}
