package limiter_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
	"github.com/regiond/regiond/test/redisserver"
)

const (
	stepUnits  = int64(5)
	stepWindow = 2 * time.Second
	// stepSlack is what a starved machine may add to a measured time.
	stepSlack = 500 * time.Millisecond
)

// TestClockSteps moves the wall clock of a running redis-server while clients of
// three stores ask for all they can get, with the production script.
func TestClockSteps(t *testing.T) {
	for _, step := range []time.Duration{-time.Second, time.Second, -time.Hour, time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			srv := redisserver.Start(t, redisserver.Options{Clock: true})
			q := limitertest.Ask(
				&quota.Limit{Name: "l", Units: stepUnits, Window: stepWindow},
				// It never binds; it keeps the log from being trimmed, for the record.
				&quota.Limit{Name: "all", Units: quota.MaxLogUnits, Window: 24 * time.Hour},
			)
			run := &stepRun{srv: srv, q: q, start: time.Now()}
			run.traffic(t, 500*time.Millisecond, step, 3*stepWindow)
			run.verify(t, step)
			run.retry(t)
		})
	}
}

// stepRun is what clients saw, by their own monotonic clocks.
type stepRun struct {
	srv   *redisserver.Server
	q     *limitertest.Question
	start time.Time

	mu       sync.Mutex
	admitted []oracle.Admission // µs after start
	stepped  int64              // µs after start
}

func (r *stepRun) check(t *testing.T, store limiter.Store) limiter.Verdict {
	v := make([]limiter.Verdict, 1)
	if err := store.Decide(context.Background(), []limiter.Call{r.q.Call("acme", limiter.OpCheck, 1, nil)}, v); err != nil {
		t.Errorf("decide: %v", err)
	}
	return v[0]
}

// traffic asks for so long from six clients, and steps the clock after some of it.
func (r *stepRun) traffic(t *testing.T, before, step, long time.Duration) {
	var clients sync.WaitGroup
	for range 3 {
		store := limiter.NewPatientRedis(t, r.srv.Addr())
		for range 2 {
			clients.Go(func() {
				think := time.NewTicker(3 * time.Millisecond)
				defer think.Stop()
				for time.Since(r.start) < long {
					<-think.C
					if r.check(t, store).Outcome == oracle.Admitted {
						r.mu.Lock()
						r.admitted = append(r.admitted, oracle.Admission{US: time.Since(r.start).Microseconds(), Cost: 1})
						r.mu.Unlock()
					}
				}
			})
		}
	}
	<-time.After(before)
	r.srv.Step(step)
	r.stepped = time.Since(r.start).Microseconds()
	clients.Wait()
}

func (r *stepRun) verify(t *testing.T, step time.Duration) {
	if worst, ok := oracle.Window(r.stamps(t), stepUnits, stepWindow.Microseconds()); !ok || worst.Units < stepUnits {
		t.Errorf("by the partition's stamps %d of %d units in a window", worst.Units, stepUnits)
	}
	// By true time a step forward may give one window's units again, a step back nothing.
	allowed := stepUnits
	if step > 0 {
		allowed += stepUnits
	}
	if worst, ok := oracle.Window(r.admitted, allowed, (stepWindow - 100*time.Millisecond).Microseconds()); !ok {
		t.Errorf("by true time %d units in a window, want at most %d", worst.Units, allowed)
	}
	// Within a window it is admitted again, however far time went back.
	for _, a := range r.admitted {
		if a.US > r.stepped {
			if wait := time.Duration(a.US-r.stepped) * time.Microsecond; wait > stepWindow+stepSlack {
				t.Errorf("nothing was admitted for %v after the step, want at most %v", wait, stepWindow)
			}
			return
		}
	}
	t.Error("nothing was admitted after the step")
}

// stamps are those of the partition's log, all of them.
func (r *stepRun) stamps(t *testing.T) []oracle.Admission {
	key := r.q.Call("acme", limiter.OpCheck, 1, nil).Keys[0]
	entries, err := r.srv.Client().LRange(context.Background(), key, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(r.admitted) {
		t.Errorf("%d entries in the log, %d admissions were answered", len(entries), len(r.admitted))
	}
	var all []oracle.Admission
	for _, e := range entries {
		stamp, _, _ := strings.Cut(e, "+")
		us, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(all); n > 0 && all[n-1].US > us {
			t.Errorf("the partition's clock went back from %d to %d", all[n-1].US, us)
		}
		all = append(all, oracle.Admission{US: us, Cost: 1})
	}
	return all
}

// retry takes the next denial at its word, in true time, and asks nothing until then.
func (r *stepRun) retry(t *testing.T) {
	store := limiter.NewPatientRedis(t, r.srv.Addr())
	asked := time.Now()
	v := r.check(t, store)
	for v.Outcome == oracle.Admitted {
		asked = time.Now()
		v = r.check(t, store)
	}
	told := time.Duration(v.Limits[0].WaitUS) * time.Microsecond
	if told <= 0 || told > stepWindow {
		t.Fatalf("told to wait %v", told)
	}
	<-time.After(told - time.Since(asked))
	eventually(t, stepSlack, "admitted when it was told to come", func() bool { return r.check(t, store).Outcome == oracle.Admitted })
}
