package memstore

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// newLocal is a store as it stands beside a Redis.
func newLocal() *memoryClock { return newMemoryClock(Options{Coarse: true}) }

// known is how many units a store knows of for the first limit of a call.
func (m *memoryClock) known(t testing.TB, c store.Call) int64 {
	t.Helper()
	c.Op = store.OpPeek
	var v [1]store.Verdict
	if m.Decide(context.Background(), []store.Call{c}, v[:]); v[0].Err != nil {
		t.Fatal(v[0].Err)
	}
	return c.Ceilings[0] - v[0].Limits[0].Remaining
}

// The reference model keeps every admission. In any window that ends now, a coarse log never
// has less of them, and of more only what was admitted up to a sixteenth of the window earlier.
func TestLocalMatchesReference(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		m, longest := newLocal(), rapid.SampledFrom([]int64{1000, 15_000, 1_000_003, 86_400_000_000}).Draw(t, "W")
		of := func(window int64) store.Call {
			return limitertest.CallOf(store.NewKeyPlan([]*quota.Limit{
				{Name: "asked", Units: 1 << 30, Window: time.Duration(window) * time.Microsecond},
				{Name: "longest", Units: 1 << 30, Window: time.Duration(longest) * time.Microsecond},
			}), "acme", 1)
		}
		charge := of(longest)
		var truth []admission // sum is its own units here
		admitted := func(after int64) (units int64) {
			for _, a := range truth {
				if a.us > after {
					units += a.sum
				}
			}
			return units
		}
		for range rapid.IntRange(1, 30).Draw(t, "rushes") {
			m.us += rapid.SampledFrom([]int64{0, 1, longest / 300, longest / 3, longest, 4 * longest}).Draw(t, "pause")
			every := rapid.SampledFrom([]int64{0, 1, longest / 2000, longest / 100}).Draw(t, "every")
			for range rapid.IntRange(1, 150).Draw(t, "charges") {
				m.us += every
				charge.Cost = rapid.Int64Range(1, 9).Draw(t, "cost")
				m.Record(&charge, nil)
				truth = append(truth, admission{m.us, charge.Cost})
			}
			k := m.keyOf(charge)
			if len(k.log) > coarseMost || cap(k.log) > 2*coarseMost {
				t.Skip("so many that it gets coarser, or may soon")
			}
			back := rapid.Int64Range(1, longest).Draw(t, "back")
			knows := m.known(outer, of(back))
			if least, most := admitted(m.us-back), admitted(m.us-back-back/coarsePart-1); knows < least || knows > most {
				t.Fatalf("knows of %d units in the last %d µs, were %d, and %d in a sixteenth more", knows, back, least, most)
			}
		}
	})
}

func (m *memoryClock) keyOf(c store.Call) *keyState {
	return m.shard(c.Keys[0]).Get(c.Keys[0], m.us).Value.(*keyState)
}

// However many admissions there are, at all ages: a log does not grow beyond a bound.
func TestLocalLogsAreBounded(t *testing.T) {
	m := newLocal()
	c := limitertest.CallOf(store.NewKeyPlan([]*quota.Limit{{Name: "day", Units: 1 << 30, Window: 24 * time.Hour}}), "acme", 1)
	units := int64(0)
	for pause := int64(1); pause < 1_000_000_000; pause *= 3 {
		for range 3_000 {
			m.us += pause
			m.Record(&c, nil)
		}
	}
	for range 300_000 { // a day of one in 288 ms
		m.us += 288_000
		m.Record(&c, nil)
		units++
	}
	k := m.keyOf(c)
	if len(k.log) > 2*coarseMost || cap(k.log) > 2*coarseMost {
		t.Errorf("a log of %d entries in an array of %d", len(k.log), cap(k.log))
	}
	if got := m.known(t, c); got < units || got > units*17/16+1 {
		t.Errorf("knows of %d units in a day, were %d", got, units)
	}
}

// A gcra bucket drains for longer than its window, and is remembered that long:
// 90 units at once, then one each second of which ten drain.
func TestLocalRemembersABurst(t *testing.T) {
	m := newLocal()
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "shaped", Units: 10, Window: time.Second, Algorithm: quota.GCRA, Burst: 100}})
	burst, one := limitertest.CallOf(plan, "acme", 90), limitertest.CallOf(plan, "acme", 1)
	m.Record(&burst, nil)
	for second := int64(1); second <= 12; second++ {
		m.us += time.Second.Microseconds()
		m.Record(&one, nil)
		if got, want := m.known(t, one), max(1, 90-9*second); got != want {
			t.Errorf("after %d s: %d known, want %d", second, got, want)
		}
	}
}

// BenchmarkRecord is what the record of an admission costs beside Redis, for partitions of
// one admission and of very many, and what it holds of each.
func BenchmarkRecord(b *testing.B) {
	limits := map[string][]*quota.Limit{
		"log":     {{Name: "hour", Units: 1 << 30, Window: time.Hour}},
		"windows": {{Name: "second", Units: 1 << 30, Window: time.Second}, {Name: "minute", Units: 1 << 30, Window: time.Minute}, {Name: "hour", Units: 1 << 30, Window: time.Hour}},
		"level":   {{Name: "hour", Units: 1 << 30, Window: time.Hour, Algorithm: quota.GCRA}},
	}
	heap := func() float64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return float64(s.HeapAlloc)
	}
	for name, limits := range limits {
		for _, partitions := range []int{100, 100_000} {
			b.Run(fmt.Sprint(name, "/", partitions), func(b *testing.B) {
				before := heap()
				m, plan := newLocal(), store.NewKeyPlan(limits)
				calls := make([]store.Call, partitions)
				for i := range calls {
					calls[i] = limitertest.CallOf(plan, fmt.Sprintf("tenant%07d", i), 1)
					m.Record(&calls[i], nil)
				}
				first := heap() - before
				i := 0
				for b.Loop() {
					m.us += 50 // 20,000 a second
					m.Record(&calls[i%partitions], nil)
					i++
				}
				b.ReportMetric((heap()-before)/float64(partitions), "bytes/partition")
				b.ReportMetric(first/float64(partitions), "bytes/first")
				runtime.KeepAlive(m)
			})
		}
	}
}
