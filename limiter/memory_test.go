package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// memoryClock is a MemoryStore whose clock the test moves by hand.
type memoryClock struct {
	*MemoryStore
	us int64
}

func newMemoryClock(o MemoryOptions) *memoryClock {
	m := &memoryClock{us: usageStart}
	o.Now = func() int64 { return m.us }
	m.MemoryStore = NewMemoryStore(o)
	return m
}

func (m *memoryClock) decideOne(t *testing.T, c Call) Verdict {
	t.Helper()
	var v [1]Verdict
	if err := m.Decide(context.Background(), []Call{c}, v[:]); err != nil {
		t.Fatal(err)
	}
	return v[0]
}

// A record keeps its verdict, whatever the callers do with those that they were given.
func TestMemoryRecordsAreItsOwn(t *testing.T) {
	m := newMemoryClock(MemoryOptions{})
	plan := NewKeyPlan([]*quota.Limit{{Name: "global", Units: 5, Window: time.Hour, Scope: quota.ScopeGlobal}})
	c := callOf(plan, "acme", 1)
	c.Counters, c.Record, c.Print = plan.AppendCounters(nil, c.Keys, "acme", "standard"), "rl:{acme}:i:k", "p"
	first := m.decideOne(t, c)
	want := first.Limits[0]
	for _, v := range []Verdict{first, m.decideOne(t, c), m.decideOne(t, c)} {
		if v.Limits[0] != want {
			t.Errorf("replayed %+v, want %+v", v.Limits[0], want)
		}
		v.Limits[0] = LimitVerdict{Remaining: 99}
	}
}

func TestMemoryKeepsOnlyCharges(t *testing.T) {
	m := newMemoryClock(MemoryOptions{})
	peek, denial := oneCall("acme", 5, 1), oneCall("acme", 5, 6)
	peek.Op = OpPeek
	m.decideOne(t, peek)
	m.decideOne(t, denial)
	if keys, records := m.held(); keys != 0 || records != 0 {
		t.Errorf("a peek and a denial left %d keys and %d records", keys, records)
	}
}

// The memory of a flood is swept as it comes, without a goroutine for it.
func TestMemorySweeps(t *testing.T) {
	m := newMemoryClock(MemoryOptions{})
	for i := range 50_000 {
		c := oneCall(fmt.Sprint("t", i), 5, 1)
		if i%4 == 0 {
			c.Record, c.Print = c.Keys[0]+"i:k", "p"
		}
		m.decideOne(t, c)
		m.us += 100_000 // so that about 2200 are live at any time
	}
	if keys, records := m.held(); keys > 8_000 || records > 4_000 {
		t.Errorf("%d partitions and %d records are held, want little more than the 1800 and 300 alive", keys, records)
	}
}

// What is live is never swept: who has used its limit is denied for all of the
// window, whatever flood comes meanwhile.
func TestMemoryNeverForgetsTheLive(t *testing.T) {
	m := newMemoryClock(MemoryOptions{})
	const spent, steps = 20, 59
	for i := range spent {
		m.decideOne(t, oneCall(fmt.Sprint("spent", i), 5, 5))
	}
	for step := range steps {
		m.us += 1_000_000
		for i := range 200 { // each shard is swept a few times
			m.decideOne(t, oneCall(fmt.Sprint("flood", step, ".", i), 5, 1))
		}
		for i := range spent {
			if v := m.decideOne(t, oneCall(fmt.Sprint("spent", i), 5, 1)); v.Outcome != denied {
				t.Fatalf("after %d s: tenant %d has used its limit of a minute and gets %+v", step+1, i, v)
			}
		}
	}
	m.us += 1_000_000
	for i := range spent {
		if v := m.decideOne(t, oneCall(fmt.Sprint("spent", i), 5, 5)); v.Outcome != admitted {
			t.Errorf("after the window tenant %d gets %+v", i, v)
		}
	}
}

// A new life begins from the seed, once per key and life, and not from what the
// last life held.
func TestMemoryRenewBeginsFromSeed(t *testing.T) {
	asked := 0
	m := newMemoryClock(MemoryOptions{seed: func(string) []charge {
		asked++
		return []charge{{usageStart - 40_000_000, 2}, {usageStart - 1_000_000, 3}}
	}})
	c := oneCall("acme", 10, 1)
	for want := int64(4); want >= 0; want-- {
		if v := m.decideOne(t, c); v.Outcome != admitted || v.Limits[0].Remaining != want {
			t.Fatalf("%+v, want %d remaining", v, want)
		}
	}
	v := m.decideOne(t, c)
	if v.Outcome != denied || v.Limits[0].WaitUS != 20_000_000 {
		t.Errorf("%+v, want a denial until the older seed leaves in 20 s", v)
	}
	if asked != 1 {
		t.Errorf("the seed was asked for %d times, want once", asked)
	}
	m.renew()
	if v := m.decideOne(t, c); v.Outcome != admitted || v.Limits[0].Remaining != 4 || asked != 2 {
		t.Errorf("a new life begins with %+v, the seed asked for %d times, want 4 remaining and 2", v, asked)
	}
}

// What has expired is as good as absent, whether or not it was swept: in a Redis it
// would be gone, and stay so when the clock steps back.
func TestMemoryForgetsWhatHasExpired(t *testing.T) {
	plan := NewKeyPlan([]*quota.Limit{{Name: "minute", Units: 5, Window: time.Minute, Scope: quota.ScopeGlobal}})
	check := callOf(plan, "acme", 5)
	check.Counters = plan.AppendCounters(nil, check.Keys, "acme", "standard")
	peek := check
	peek.Op = OpPeek
	lives := (2*time.Minute + ttlMargin).Microseconds()
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
			m := newMemoryClock(MemoryOptions{})
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

func TestMemoryConcurrent(t *testing.T) {
	const units, callers = 500, 16
	m := NewMemoryStore(MemoryOptions{})
	var got atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range units / 8 {
				var v [1]Verdict
				c := oneCall("acme", units, 1)
				if m.Decide(context.Background(), []Call{c}, v[:]) == nil && v[0].Outcome == admitted {
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

func (m *memoryClock) held() (keys, records int) {
	for i := range m.shards {
		keys += len(m.shards[i].keys)
		records += len(m.shards[i].records)
	}
	return keys, records
}

// Newcomers beyond the bound are refused, and nobody who is there loses a place;
// when some expire there is room again.
func TestMemoryBounded(t *testing.T) {
	m := newMemoryClock(MemoryOptions{Partitions: 10 * memoryShards})
	refused := 0
	for i := range 5_000 {
		v := m.decideOne(t, oneCall(fmt.Sprint("t", i), 5, 1))
		if v.Err == nil {
			continue
		}
		refused++
		var e *StoreError
		if !errors.As(v.Err, &e) || e.Ambiguous || e.Reason != quota.ReasonRedisRefused {
			t.Fatalf("refused with %v, want redis_refused and nothing charged", v.Err)
		}
	}
	if keys, _ := m.held(); keys > 640 || keys != 5_000-refused {
		t.Errorf("%d partitions are held after %d of 5000 were refused, want at most 640", keys, refused)
	}
	if v := m.decideOne(t, oneCall("t0", 5, 1)); v.Err != nil || v.Limits[0].Remaining != 3 {
		t.Errorf("the first comer: %+v, want 3 remaining", v)
	}
	m.us += (2*time.Minute + ttlMargin).Microseconds() // all but t0 expire, t0 has just
	for i := range 5_000 {
		m.decideOne(t, oneCall(fmt.Sprint("later", i%300), 5, 1))
	}
	if v := m.decideOne(t, oneCall("later7", 5, 1)); v.Err != nil {
		t.Errorf("no room after all had expired: %v", v.Err)
	}
}

// fromAddress is a check of one of a tenant's many partitions.
func fromAddress(tenant string, n int) Call {
	c := oneCall(tenant, 5, 1)
	c.Keys = []string{fmt.Sprintf("rl:{%s}:l:standard:ip:%d:", tenant, n)}
	return c
}

// The room is everybody's: one tenant may fill all of it. Once its partitions have
// expired there is room for others, although that tenant does not come again.
func TestMemoryRoomIsShared(t *testing.T) {
	const most = 5_000
	m := newMemoryClock(MemoryOptions{Partitions: most})
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
	m.us += (2*time.Minute + ttlMargin).Microseconds()
	refused := 0
	for i := range most / 2 {
		if m.decideOne(t, fromAddress(fmt.Sprint("other", i), 0)).Err != nil {
			refused++
		}
	}
	if refused >= memoryShards {
		t.Errorf("%d of %d others were refused when all had expired, want fewer than there are shards to look through", refused, most/2)
	}
}

// Callers that arrive at the same time exceed the bound by one partition for each shard at most.
func TestMemoryBoundedConcurrently(t *testing.T) {
	const most, callers = 500, 8
	var us atomic.Int64
	us.Store(usageStart)
	m := NewMemoryStore(MemoryOptions{Now: us.Load, Partitions: most})
	var wg sync.WaitGroup
	for w := range callers {
		wg.Go(func() {
			for i := range 2_000 {
				us.Add(30_000) // a partition lives for 6,000 calls, of 16,000
				var v [1]Verdict
				_ = m.Decide(context.Background(), []Call{fromAddress(fmt.Sprint("t", w, ".", i%100), i)}, v[:])
			}
		})
	}
	wg.Wait()
	if n, _ := (&memoryClock{MemoryStore: m}).held(); int64(n) != m.size.Load() || n < most || n > most+memoryShards {
		t.Errorf("%d partitions are held and %d counted, want the same and %d to %d", n, m.size.Load(), most, most+memoryShards)
	}
}

// A shard that once held much is not searched for ever as if it did: its map is made
// anew, and nothing that is live is lost by that.
func TestMemoryLetsGoOfRoom(t *testing.T) {
	m := newMemoryClock(MemoryOptions{})
	for i := range 10 * shrinkAbove {
		m.decideOne(t, fromAddress("acme", i))
	}
	m.us += (2*time.Minute + ttlMargin).Microseconds()
	live := fromAddress("acme", -1)
	live.Cost = 5
	m.decideOne(t, live)
	live.Cost = 1
	for range 10 * shrinkAbove { // far more often than it takes to sweep them all
		if v := m.decideOne(t, live); v.Outcome != denied {
			t.Fatalf("who has used its limit gets %+v", v)
		}
	}
	s := m.shard(live.Keys[0])
	if len(s.keys) != 1 || s.widest > 2*shrinkAbove {
		t.Errorf("%d partitions are held in a map that had %d, want 1 and a smaller one", len(s.keys), s.widest)
	}
}

// What is counted as held is what is held, whatever drops it: a sweep, a reset, or a
// question that finds it expired.
func TestMemoryCountsWhatItHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	learnt := func(string) []charge { return []charge{{usageStart, 1}} }
	for _, seed := range []func(string) []charge{nil, learnt} {
		m := newMemoryClock(MemoryOptions{Partitions: 300, seed: seed})
		for step := range 20_000 {
			tenant := fmt.Sprint("t", random.IntN(20))
			switch random.IntN(200) {
			case 0:
				m.us += random.Int64N((3 * time.Minute).Microseconds())
			case 1:
				m.renew()
			case 2:
				if err := m.Reset(context.Background(), tenant); err != nil {
					t.Fatal(err)
				}
			default:
				c := fromAddress(tenant, random.IntN(40))
				c.Op = []Op{OpCheck, OpPeek, OpReport}[random.IntN(3)]
				m.decideOne(t, c)
			}
			if keys, _ := m.held(); int64(keys) != m.size.Load() || keys > 300 {
				t.Fatalf("step %d: %d partitions are held and %d counted, want the same and at most 300", step, keys, m.size.Load())
			}
		}
	}
}
