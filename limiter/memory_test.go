package limiter

import (
	"context"
	"fmt"
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
	m := &memoryClock{us: mirrorStart}
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
	shape := NewKeyPlan([]*quota.Limit{{Name: "global", Units: 5, Window: time.Hour, Scope: quota.ScopeGlobal}})
	c := callOf(shape, "acme", 1)
	c.Counters, c.Record, c.Print = shape.Counters(c.Keys, "acme", "standard"), "rl:{acme}:i:k", "p"
	first := m.decideOne(t, c)
	want := first.Limits[0]
	for _, v := range []Verdict{first, m.decideOne(t, c), m.decideOne(t, c)} {
		if v.Limits[0] != want {
			t.Errorf("replayed %+v, want %+v", v.Limits[0], want)
		}
		v.Limits[0] = LimitVerdict{Remaining: 99}
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

func TestMemoryKeepsWhatIsAsked(t *testing.T) {
	m := newMemoryClock(MemoryOptions{})
	peek := oneCall("acme", 5, 1)
	peek.Op = OpPeek
	dear := oneCall("acme", 5, 6)
	for _, c := range []Call{peek, dear} {
		m.decideOne(t, c)
	}
	if keys, records := m.held(); keys != 0 || records != 0 {
		t.Errorf("a peek and a denial left %d keys and %d records", keys, records)
	}
}

func TestMemoryResetsOneTenant(t *testing.T) {
	m := newMemoryClock(MemoryOptions{})
	for _, tenant := range []string{"acme", "acme2"} {
		c := oneCall(tenant, 5, 4)
		c.Record, c.Print = "rl:{"+tenant+"}:i:k", "p"
		m.decideOne(t, c)
	}
	if err := m.Reset(context.Background(), "acme"); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]int64{"acme": 4, "acme2": 0} {
		if v := m.decideOne(t, oneCall(tenant, 5, 1)); v.Limits[0].Remaining != want {
			t.Errorf("%s: %d remaining, want %d", tenant, v.Limits[0].Remaining, want)
		}
	}
	again := oneCall("acme", 5, 4)
	again.Record, again.Print = "rl:{acme}:i:k", "p"
	if v := m.decideOne(t, again); v.Outcome != admitted {
		t.Errorf("the record of a reset tenant answers %c", v.Outcome)
	}
}

// A new life begins from the seed, once per key and life, and not from what the
// last life held.
func TestMemoryRenewBeginsFromSeed(t *testing.T) {
	asked := 0
	m := newMemoryClock(MemoryOptions{seed: func(string) []charge {
		asked++
		return []charge{{mirrorStart - 40_000_000, 2}, {mirrorStart - 1_000_000, 3}}
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
	shape := NewKeyPlan([]*quota.Limit{{Name: "minute", Units: 5, Window: time.Minute, Scope: quota.ScopeGlobal}})
	check := callOf(shape, "acme", 5)
	check.Counters = shape.Counters(check.Keys, "acme", "standard")
	peek := check
	peek.Op = OpPeek
	lives := (2*time.Minute + ttlMargin).Microseconds()
	for _, row := range []struct {
		name  string
		idle  int64 // µs until the next call
		total int64 // units that this one is told of
		left  int64 // remaining once the clock has stepped back to the beginning
	}{
		{"a moment before", lives - 1, 5, 0},
		{"then", lives, 0, 5},
		{"an hour later", 3_600_000_000, 0, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newMemoryClock(MemoryOptions{})
			m.decideOne(t, check)
			m.us += row.idle
			if got := m.decideOne(t, peek).Limits[0].Counter.Units; got != row.total {
				t.Errorf("a total of %d units is told, want %d", got, row.total)
			}
			m.us = mirrorStart
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
