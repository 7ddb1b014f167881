package ledger_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// hourly has the reset in one bucket and the present at the beginning of the next, so that
// of nine units in the former all count.
var hourly = ledger.Series{ID: 7, Tenant: "acme", Limit: "a.hour", Units: 600, WindowUS: hourUS}

const (
	hourUS = 3_600_000_000
	nowUS  = startUS/hourUS*hourUS + hourUS + 20_000_000
	cutUS  = nowUS - 30_000_000
)

// made is what a reset may find or meet: a counter by its name.
type made struct {
	region             string
	bucket, generation int64
}

// superseded says it from where the counter came, not by comparing it with a cut.
func (c made) superseded(state wire.CutState) bool {
	switch {
	case c.generation > nowUS+1_000_000, c.bucket*hourly.WindowUS > nowUS+1_000_000:
		return true // nobody can have made it yet
	case c.generation > cutUS:
		return false // made after the reset
	}
	return state == wire.CutDeleted || c.bucket == cutUS/hourly.WindowUS
}

// TestResetsInAnyOrder: whatever arrives, how often and in what order, before or after the cut and
// after restarts, once a ledger has the cut of a region it counts of it what was used after the
// reset, and nothing else; and all of another tenant.
func TestResetsInAnyOrder(t *testing.T) {
	regions := []string{"eu-west", "us-east", "ap-south"}
	rapid.Check(t, func(t *rapid.T) {
		clock := &fakeClock{}
		clock.us.Store(nowUS - startUS)
		var l *ledger.Ledger
		var units, others map[made]int64
		var states map[string]wire.CutState
		restart := func(*rapid.T) {
			l, units, others, states = newLedger(t, clock, nil), map[made]int64{}, map[made]int64{}, map[string]wire.CutState{}
		}
		restart(t)
		t.Repeat(map[string]func(*rapid.T){
			"restart": restart,
			"counter": func(t *rapid.T) {
				c := made{
					region:     rapid.SampledFrom(regions).Draw(t, "region"),
					bucket:     cutUS/hourly.WindowUS + rapid.Int64Range(0, 2).Draw(t, "bucket"),
					generation: rapid.SampledFrom([]int64{cutUS - 5_000_000, cutUS, cutUS + 1, nowUS, nowUS + 20_000_000, wire.EndOfTime}).Draw(t, "generation"),
				}
				n := rapid.Int64Range(1, 9).Draw(t, "units")
				units[c], others[c] = max(units[c], n), max(others[c], n)
				g := wire.Group{Limit: hourly.Limit, WindowUS: hourly.WindowUS, Bucket: c.bucket, IDs: []uint64{7, 8}, Generations: []int64{c.generation, c.generation}, Units: []int64{n, n}}
				var err error
				if c.region == "eu-west" && rapid.Bool().Draw(t, "returned") {
					err = l.FoldReturned(nowUS, clock.now(), []wire.Group{g})
				} else {
					err = l.Fold(c.region, nowUS, clock.now(), []wire.Group{g}, false)
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			"cut": func(t *rapid.T) {
				region, state := rapid.SampledFrom(regions).Draw(t, "region"), wire.CutState(rapid.IntRange(0, 2).Draw(t, "state"))
				before, known := states[region]
				news := l.Supersede("acme", []wire.Cut{{Region: region, UpTo: cutUS, State: state}, {Region: region, UpTo: cutUS - 1, State: wire.CutReturned}})
				if news != (!known || state > before) {
					t.Fatalf("state %d after %d (%t): news %t", state, before, known, news)
				}
				states[region] = max(before, state)
			},
			"": func(t *rapid.T) {
				want, other := make([]int64, 3), make([]int64, 3)
				for c, n := range others {
					other[l.Region(c.region)] += n
				}
				for c, n := range units {
					if state, known := states[c.region]; known && c.superseded(state) {
						continue
					}
					want[l.Region(c.region)] += n
				}
				estimates := func(tenant string, id uint64) []int64 {
					out := make([]int64, 3)
					l.Purge(tenant, id)
					l.Estimates(id, hourly.WindowUS, quota.MaxCounter, clock.now(), out)
					return out
				}
				if got := estimates("acme", 7); !slices.Equal(got, want) {
					t.Fatalf("%d count, want %d", got, want)
				}
				if got := estimates("globex", 8); !slices.Equal(got, other) {
					t.Fatalf("of another tenant %d count, want %d", got, other)
				}
				for c := range units { // dropped is dropped, also when the store has it again
					if state, known := states[c.region]; known && c.superseded(state) && c.generation <= cutUS {
						delete(units, c)
					}
				}
			},
		})
	})
}

// resetLedger is a ledger of which our own store is asked.
func resetLedger(t *testing.T, change func(*ledger.Options)) (l *ledger.Ledger, clock *fakeClock, used func() (own, lost int64)) {
	clock = &fakeClock{}
	clock.us.Store(nowUS - startUS)
	l = newLedger(t, clock, change)
	return l, clock, func() (own, lost int64) {
		out := make([]int64, 1)
		l.Purge("acme", hourly.ID)
		lost, _ = l.Estimates(hourly.ID, hourly.WindowUS, quota.MaxCounter, clock.now(), out)
		return out[0], lost
	}
}

// What a reset deletes in our store is not lost: nothing is subtracted for it, and nobody is told.
func TestResetIsNoLoss(t *testing.T) {
	l, clock, used := resetLedger(t, func(o *ledger.Options) { o.Lost = func(int64) { t.Error("a loss is reported") } })
	bucket := nowUS / hourly.WindowUS
	l.Record(&hourly, quota.Counter{Bucket: bucket, Generation: cutUS, Units: 50}, quota.Gauge{}, nowUS)
	l.Local(&hourly, 20, nowUS)
	if own, lost := used(); own != 70 || lost != 20 {
		t.Fatalf("%d units, %d lost", own, lost)
	}
	cut := wire.Cut{Region: "eu-west", UpTo: nowUS}
	l.Supersede("acme", []wire.Cut{cut})
	l.Record(&hourly, quota.Counter{Bucket: bucket, Generation: cutUS, Units: 51}, quota.Gauge{}, nowUS) // it is not deleted yet
	cut.State = wire.CutDeleted
	l.Supersede("acme", []wire.Cut{cut})
	clock.advance(300 * time.Millisecond)
	l.Record(&hourly, quota.Counter{Bucket: bucket, Generation: nowUS + 300_000, Units: 3}, quota.Gauge{}, nowUS+300_000)
	if own, lost := used(); own != 3 || lost != 0 {
		t.Fatalf("of the new counter %d units, %d lost", own, lost)
	}
	// What is admitted without the store has a generation of after the cut.
	clock.advance(time.Second)
	l.Local(&hourly, 4, nowUS+1_300_000)
	if own, lost := used(); own != 7 || lost != 4 {
		t.Fatalf("with what the store never had %d units, %d lost", own, lost)
	}
	for _, g := range l.Take(10, true, 1) {
		for _, generation := range g.Generations {
			if generation <= nowUS {
				t.Errorf("generation %d is published, which peers do not count", generation)
			}
		}
	}
	l.Record(&hourly, quota.Counter{Bucket: bucket, Generation: nowUS + 300_000, Units: 5}, quota.Gauge{}, nowUS+1_300_000)
	if own, lost := used(); own != 9 || lost != 4 {
		t.Fatalf("with the store again %d units, %d lost", own, lost)
	}
}

// A store that went back to before the reset has the old counters again, and goes on with them:
// from the next bucket on they count, here and with peers.
func TestResetThatReturns(t *testing.T) {
	var returned []string
	l, clock, used := resetLedger(t, func(o *ledger.Options) { o.Returned = func(tenant string) { returned = append(returned, tenant) } })
	old := quota.Counter{Bucket: nowUS / hourly.WindowUS, Generation: cutUS, Units: 50}
	l.Supersede("acme", []wire.Cut{{Region: "eu-west", UpTo: nowUS, State: wire.CutDeleted}})
	l.Record(&hourly, old, quota.Gauge{}, nowUS) // a check that was under way
	if len(returned) > 0 {
		t.Fatal("a late answer counts as a return")
	}
	clock.advance(time.Hour)
	old.Bucket, old.Units = old.Bucket+1, 2
	for range 3 {
		l.Record(&hourly, old, quota.Gauge{}, nowUS+hourUS)
	}
	if own, _ := used(); own != 2 || !slices.Equal(returned, []string{"acme"}) {
		t.Errorf("%d units, returned %q", own, returned)
	}
	for tenant, cuts := range l.Resets() {
		if tenant != "acme" || len(cuts) != 1 || cuts[0] != (wire.Cut{Region: "eu-west", UpTo: nowUS, State: wire.CutReturned}) {
			t.Errorf("%s: %+v", tenant, cuts)
		}
	}
}

// A cut far ahead of a region's clock would hide what the region is yet to use.
func TestCutAheadIsRefused(t *testing.T) {
	l, clock, _ := resetLedger(t, nil)
	if err := l.Fold("us-east", nowUS, clock.now(), nil, false); err != nil {
		t.Fatal(err)
	}
	for ahead, want := range map[int64]bool{61_000_000: false, 59_000_000: true} {
		if got := l.Supersede("t", []wire.Cut{{Region: "us-east", UpTo: nowUS + ahead}}); got != want {
			t.Errorf("%d µs ahead: %t", ahead, got)
		}
	}
}

// The tenants that are known are bounded; the oldest is forgotten.
func TestResetsAreBounded(t *testing.T) {
	l, clock, _ := resetLedger(t, nil)
	for i := range 1100 {
		clock.advance(time.Millisecond)
		l.Supersede(string(rune('a'+i)), []wire.Cut{{Region: "eu-west", UpTo: nowUS}})
	}
	n := 0
	for tenant := range l.Resets() {
		if n++; []rune(tenant)[0] < 'a'+1100-1024 {
			t.Errorf("tenant %q is still known", tenant)
		}
	}
	if n != 1024 {
		t.Errorf("%d are known", n)
	}
}
