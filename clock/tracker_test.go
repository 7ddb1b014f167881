package clock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/regiond/regiond/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// redis is a Redis in a bubble's time. Fields are changed while it runs.
type redis struct {
	begun time.Time
	moved atomic.Int64 // by steps, ns
	trip  atomic.Int64 // round trip, ns; TIME is read half way
	down  atomic.Bool
	reads atomic.Int64
}

var errDown = errors.New("connection refused")

func (r *redis) read(ctx context.Context) (int64, error) {
	r.reads.Add(1)
	if r.down.Load() {
		return 0, errDown
	}
	half := time.Duration(r.trip.Load() / 2)
	if err := wait(ctx, half); err != nil {
		return 0, err
	}
	now := r.timeUS()
	return now, wait(ctx, half)
}

func (r *redis) timeUS() int64 {
	return epochUS + (time.Since(r.begun) + time.Duration(r.moved.Load())).Microseconds()
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// journal is a log kept as lines without time.
type journal struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.Write(p)
}

// take returns what was logged since the last take.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.lines.Reset()
	return j.lines.String()
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// track runs a Tracker on a Redis within the bubble until the test ends.
func track(t *testing.T, o clock.Options) (*clock.Tracker, *redis, *journal) {
	t.Helper()
	r := &redis{begun: time.Now()}
	r.trip.Store(int64(ms))
	log := &journal{}
	o.Read, o.Logger = r.read, log.logger()
	tracker, err := clock.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tracker.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v, want nil", err)
		}
	})
	return tracker, r, log
}

// pass lets d of the bubble's time go by, and all that happens in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantTrue(t *testing.T, tracker *clock.Tracker, r *redis) {
	t.Helper()
	got := tracker.Reading()
	if wrong := time.Duration(got.NowUS-r.timeUS()) * us; !got.Valid || wrong.Abs() > got.Uncertainty+us {
		t.Errorf("reading is off by %v, valid %v; want valid and within %v", wrong, got.Valid, got.Uncertainty)
	}
}

func wantLog(t *testing.T, log *journal, want string) {
	t.Helper()
	if got := log.take(); got != want {
		t.Errorf("log is\n%s\nwant\n%s", got, want)
	}
}

func TestTrackerReadsAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, r, log := track(t, clock.Options{})
		if got := tracker.Reading(); got != (clock.Reading{}) {
			t.Errorf("before the first sample: %+v, want nothing", got)
		}
		pass(ms)
		wantTrue(t, tracker, r)
		if got := tracker.Reading(); got.Age != 0 || got.Uncertainty != 501*us {
			t.Errorf("after one sample of 1 ms: ± %v, age %v; want ± 501µs, age 0", got.Uncertainty, got.Age)
		}
		pass(998 * ms)
		wantTrue(t, tracker, r)
		if got := tracker.Reading(); r.reads.Load() != 1 || got.Age != 998*ms || got.Uncertainty != 501*us+499*us {
			t.Errorf("%d reads, ± %v, age %v; want one, ± 1ms, 998ms", r.reads.Load(), got.Uncertainty, got.Age)
		}
		pass(9 * s)
		wantTrue(t, tracker, r)
		if got := r.reads.Load(); got != 10 {
			t.Errorf("%d reads in ten seconds, want 10", got)
		}
		wantLog(t, log, "")
	})
}

func TestTrackerFindsSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, r, log := track(t, clock.Options{})
		pass(2*s + 500*ms)
		for _, row := range []struct {
			by   time.Duration
			size string
		}{
			{time.Hour, "1h0m0s"},
			{-time.Hour, "-1h0m0s"},
			{-s, "-1s"},
			{s, "1s"},
		} {
			r.moved.Add(int64(row.by))
			pass(s)
			wantTrue(t, tracker, r)
			wantLog(t, log, `level=WARN msg="redis clock stepped" step=`+row.size+" uncertainty=501µs\n")
		}
		pass(10 * s)
		wantLog(t, log, "")
	})
}

func TestTrackerWhileRedisIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, r, log := track(t, clock.Options{})
		pass(500 * ms)
		r.down.Store(true)
		pass(100 * s)
		wantTrue(t, tracker, r) // extrapolated, and still right
		if got := tracker.Reading(); got.Age < 100*s || got.Uncertainty < 50*ms {
			t.Errorf("± %v, age %v; want them to have grown to over ± 50ms, 100s", got.Uncertainty, got.Age)
		}
		wantLog(t, log, `level=WARN msg="redis TIME cannot be read: the region's time is extrapolated" error="connection refused"`+"\n")

		r.down.Store(false)
		pass(s)
		wantTrue(t, tracker, r)
		if got := tracker.Reading(); got.Age > s {
			t.Errorf("age %v after the return, want a new sample", got.Age)
		}
		wantLog(t, log, `level=INFO msg="redis TIME is read again"`+"\n")
	})
}

// A Redis that does not answer costs its timeout and nothing else.
func TestTrackerGivesUpAtTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, r, log := track(t, clock.Options{Interval: 100 * ms, Timeout: 60 * ms})
		pass(50 * ms)
		r.trip.Store(int64(time.Hour))
		pass(s)
		if got := r.reads.Load(); got != 11 {
			t.Errorf("%d reads, want one each interval: 11", got)
		}
		wantTrue(t, tracker, r)
		wantLog(t, log, `level=WARN msg="redis TIME cannot be read: the region's time is extrapolated" error="context deadline exceeded"`+"\n")
	})
}

// Nonsense from Redis is treated as no answer.
func TestTrackerRefusesNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, r, log := track(t, clock.Options{})
		pass(500 * ms)
		r.moved.Store(-2 * epochUS * int64(us)) // before 1970
		pass(s)
		if got := tracker.Reading(); got.Age < s || got.NowUS < epochUS {
			t.Errorf("reading is %+v, want the one from before", got)
		}
		if got := log.take(); !strings.Contains(got, "TIME must be between the years 1970 and 2112") {
			t.Errorf("log is %q, want what was wrong", got)
		}
	})
}

// A tracker that was stopped vouches for nothing.
func TestReadingAfterRunHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &redis{begun: time.Now()}
		tracker, err := clock.New(clock.Options{Read: r.read})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*s+ms)
		defer cancel()
		if err := tracker.Run(ctx); err != nil {
			t.Fatal(err)
		}
		wantTrue(t, tracker, r)
		pass(5 * s)
		if tracker.Reading().Valid {
			t.Error("valid five seconds after Run has ended")
		}
	})
}

// An end in the middle of a reading is no failure to log.
func TestRunEndsWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		tracker, err := clock.New(clock.Options{Logger: log.logger(), Read: func(ctx context.Context) (int64, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		if err := tracker.Run(ctx); err != nil {
			t.Errorf("Run ended with %v, want nil", err)
		}
		wantLog(t, log, "")
	})
}

// For the race detector: everybody reads while samples and steps come in, and
// nobody ever sees a time that no sample has left possible.
func TestReadingFromEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, r, _ := track(t, clock.Options{Interval: ms, Timeout: ms})
		r.trip.Store(int64(100 * us))
		pass(10 * ms)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 200 {
					got := tracker.Reading()
					if lag := (time.Duration(got.NowUS-r.timeUS()) * us).Abs(); lag > 51*us+ms && lag < s-ms {
						t.Errorf("reading is off by %v", lag)
					}
					time.Sleep(50 * us)
				}
			})
		}
		pass(5 * ms)
		r.moved.Add(int64(s))
		wg.Wait()
		wantTrue(t, tracker, r)
	})
}
