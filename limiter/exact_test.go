package limiter_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
	"github.com/regiond/regiond/test/redisserver"
)

// processes are limiters on one Redis that share nothing else, as several
// regiond processes of a region do not.
func processes(t *testing.T, addr string, n int, c limiter.Config) []*rig {
	t.Helper()
	rigs := make([]*rig, n)
	for i := range rigs {
		metrics, reader := readMetrics(t)
		rigs[i] = storeRig(t, limiter.NewPatientRedis(t, addr), c, metrics, reader, nil)
	}
	return rigs
}

// TestBurst has 64 clients ask three processes at once, far more than there is:
// exactly L are admitted, and the last of them leaves nothing.
func TestBurst(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	for _, row := range []struct {
		units, cost, admitted int64
	}{
		{1, 1, 1}, {7, 1, 7}, {100, 1, 100}, {1000, 1, 1000}, {100, 3, 33}, {64, 64, 1},
	} {
		flush(t, srv.Client())
		rigs := processes(t, srv.Addr(), 3, onePolicy(quota.Policy{Limits: []quota.Limit{
			{Name: "hour", Units: row.units, Window: time.Hour},
			{Name: "day", Units: 2 * row.units, Window: 24 * time.Hour},
		}}))
		var (
			admitted atomic.Int64
			start    = make(chan struct{})
			clients  sync.WaitGroup
		)
		for i := range 64 {
			clients.Go(func() {
				<-start
				for range max(4, 2*row.units/64) {
					if rigs[i%len(rigs)].check(t, "acme", row.cost).Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		close(start)
		clients.Wait()
		if n := admitted.Load(); n != row.admitted {
			t.Errorf("%d units at cost %d: %d admitted, want %d", row.units, row.cost, n, row.admitted)
		}
	}
}

// told is what one client saw.
type told struct {
	us, cost int64
	allowed  bool
}

// TestRecordedRun replays what clients with thoughts of their own were told: no
// window held more than L, and nobody was denied while there was room.
func TestRecordedRun(t *testing.T) {
	const units, window = int64(20), 50 * time.Millisecond
	srv := redisserver.Start(t, redisserver.Options{})
	rigs := processes(t, srv.Addr(), 3, onePolicy(quota.Policy{Limits: []quota.Limit{{Name: "l", Units: units, Window: window}}}))
	var (
		mu      sync.Mutex
		all     []told
		clients sync.WaitGroup
	)
	for i := range 12 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(i)))
			think := time.NewTimer(0)
			defer think.Stop()
			for range 120 {
				<-think.C
				d := rigs[i%len(rigs)].check(t, "acme", 1+random.Int64N(3))
				if d.StoreUS > 0 {
					mu.Lock()
					all = append(all, told{us: d.StoreUS, cost: d.Cost, allowed: d.Allowed})
					mu.Unlock()
				}
				think.Reset(time.Duration(random.IntN(8000)) * time.Microsecond)
			}
		})
	}
	clients.Wait()
	var admitted []oracle.Admission
	for _, a := range all {
		if a.allowed {
			admitted = append(admitted, oracle.Admission{US: a.us, Cost: a.cost})
		}
	}
	if worst, ok := oracle.Window(admitted, units, window.Microseconds()); !ok || worst.Units < units-2 {
		t.Errorf("the fullest window holds %d of %d", worst.Units, units)
	}
	denials := 0
	for _, a := range all {
		if a.allowed {
			continue
		}
		denials++
		used := int64(0)
		for _, b := range admitted {
			if b.US <= a.us && b.US > a.us-window.Microseconds() {
				used += b.Cost
			}
		}
		if used+a.cost <= units {
			t.Errorf("denied cost %d while %d of %d were used", a.cost, used, units)
		}
	}
	if denials < 50 || len(admitted) < 50 {
		t.Errorf("%d denials and %d admissions show nothing", denials, len(admitted))
	}
	worst, _ := oracle.Window(admitted, units, window.Microseconds())
	seeded := append(admitted, oracle.Admission{US: worst.End, Cost: units - worst.Units + 1})
	if _, ok := oracle.Window(seeded, units, window.Microseconds()); ok {
		t.Error("one unit too many in a window was not seen")
	}
}

// TestBoundaryBurst spends a minute's units just before the minute is over and
// asks for them again just after: what a counter per minute lets through twice.
func TestBoundaryBurst(t *testing.T) {
	const units, minute, half = int64(524), int64(60_000_000), int64(150_000)
	start := timedRedis(t)
	for _, row := range []struct {
		algorithm quota.Algorithm
		burst     int64 // admitted in the 300 ms around the minute's edge
	}{
		{quota.SlidingLog, units},
		{quota.GCRA, units + 2},          // 524 a minute drain 2.6 in 300 ms
		{quota.SlidingWindow, units + 1}, // 0.25 % of the minute before has faded
	} {
		store, now := start(t)
		q := limitertest.Ask(&quota.Limit{Name: "l", Units: units, Window: time.Minute, Algorithm: row.algorithm})
		edge := limitertest.Epoch - limitertest.Epoch%minute + minute
		var all []oracle.Admission
		for _, us := range []int64{edge - half, edge + half - 1} {
			now(us)
			for asked := int64(0); asked < units; {
				calls := make([]limiter.Call, min(64, units-asked))
				for i := range calls {
					calls[i] = q.Call("acme", limiter.OpCheck, 1, nil)
				}
				asked += int64(len(calls))
				verdicts := make([]limiter.Verdict, len(calls))
				if err := store.Decide(context.Background(), calls, verdicts); err != nil {
					t.Fatal(err)
				}
				for _, v := range verdicts {
					if v.Outcome == oracle.Admitted {
						all = append(all, oracle.Admission{US: us, Cost: 1})
					}
				}
			}
		}
		worst, ok := oracle.Window(all, units, minute)
		if int64(len(all)) != row.burst || ok != (row.burst <= units) {
			t.Errorf("%v: %d of %d requests passed in 300 ms, %d in a minute, want %d", row.algorithm, len(all), 2*units, worst.Units, row.burst)
		}
	}
}
