package clock_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// redis is a Redis in a bubble's time, and the local clock beside it. Fields are
// changed while it runs.
type redis struct {
	begun     time.Time
	stepped   atomic.Int64                 // ns
	paused    atomic.Int64                 // ns that the local clock, but not the bubble, is ahead by
	roundTrip atomic.Int64                 // ns; TIME is read half way
	fault     atomic.Pointer[readTimeFunc] // instead of an answer
	reads     atomic.Int64
}

type readTimeFunc func(context.Context) (int64, error)

func (r *redis) read(ctx context.Context) (int64, error) {
	r.reads.Add(1)
	if f := r.fault.Load(); f != nil {
		return (*f)(ctx)
	}
	half := time.Duration(r.roundTrip.Load() / 2)
	if err := wait(ctx, half); err != nil {
		return 0, err
	}
	now := r.timeUS()
	return now, wait(ctx, half)
}

func (r *redis) timeUS() int64 {
	return epochUS + (r.now() + time.Duration(r.stepped.Load())).Microseconds()
}

// now is the local monotonic clock.
func (r *redis) now() time.Duration { return time.Since(r.begun) + time.Duration(r.paused.Load()) }

// pause stops the process for d: the bubble's own time, and with it the ticker,
// does not advance.
func (r *redis) pause(d time.Duration) { r.paused.Add(int64(d)) }

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

// logLines are what was logged, without time.
type logLines struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (j *logLines) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.Write(p)
}

// take returns what was logged since the last take.
func (j *logLines) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.lines.Reset()
	return j.lines.String()
}

func (j *logLines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// newRegistry returns a registry, and a provider whose meters it shows.
func newRegistry(t *testing.T) (*prometheus.Registry, *metric.MeterProvider) {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return registry, provider
}

// wantScrape checks what Prometheus would scrape of this package, comments left out.
func wantScrape(t *testing.T, registry *prometheus.Registry, when, want string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	var lines strings.Builder
	for line := range strings.Lines(recorder.Body.String()) {
		if strings.HasPrefix(line, "regiond_") {
			lines.WriteString(line)
		}
	}
	if got := lines.String(); got != want {
		t.Errorf("%s, /metrics has\n%s\nwant\n%s", when, got, want)
	}
}

// track runs a Tracker on a Redis until stop is called, or the test ends.
func track(t *testing.T, o clock.Options) (tracker *clock.Tracker, r *redis, log *logLines, stop func()) {
	t.Helper()
	r, log = &redis{begun: time.Now()}, &logLines{}
	r.roundTrip.Store(int64(ms))
	o.Read, o.Now, o.Logger = r.read, r.now, log.logger()
	tracker, err := clock.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tracker.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	return tracker, r, log, stop
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

func wantLog(t *testing.T, log *logLines, want string) {
	t.Helper()
	if got := log.take(); got != want {
		t.Errorf("log is\n%s\nwant\n%s", got, want)
	}
}

func TestTrackerReadsAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, r, log, _ := track(t, clock.Options{})
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
		for _, step := range []time.Duration{time.Hour, -time.Hour, -s, s} {
			r.stepped.Add(int64(step))
			pass(s)
			wantTrue(t, tracker, r)
			wantLog(t, log, `level=WARN msg="redis clock stepped" step=`+step.String()+" uncertainty=501µs\n")
		}
	})
}

// While TIME cannot be read, the estimate is extrapolated, and one line is logged.
func TestTrackerWhileReadingFails(t *testing.T) {
	for name, row := range map[string]struct {
		read readTimeFunc
		log  string
	}{
		"refused": {
			func(context.Context) (int64, error) { return 0, errors.New("connection refused") }, "connection refused",
		},
		"no answer": {
			func(ctx context.Context) (int64, error) { <-ctx.Done(); return 0, ctx.Err() }, "context deadline exceeded",
		},
		"nonsense": {
			func(context.Context) (int64, error) { return -1, nil }, "TIME must be between the years 1970 and 2112, is -1 µs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tracker, r, log, _ := track(t, clock.Options{})
				pass(600 * ms)
				r.fault.Store(&row.read)
				pass(100 * s)
				wantTrue(t, tracker, r)
				if got := tracker.Reading(); r.reads.Load() != 101 || got.Age < 100*s || got.Uncertainty < 50*ms {
					t.Errorf("%d reads, ± %v, age %v; want 101, over ± 50ms, over 100s", r.reads.Load(), got.Uncertainty, got.Age)
				}
				wantLog(t, log, `level=WARN msg="redis TIME cannot be read: the region's time is extrapolated" error="`+row.log+"\"\n")

				r.fault.Store(nil)
				pass(s)
				wantTrue(t, tracker, r)
				if got := tracker.Reading(); got.Age > s {
					t.Errorf("age %v afterwards, want a new sample", got.Age)
				}
				wantLog(t, log, `level=INFO msg="redis TIME is read again"`+"\n")
			})
		})
	}
}

func TestReadingAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, r, log, _ := track(t, clock.Options{})
		pass(2*s + 500*ms)

		r.pause(3 * s) // 3.5 s since the last reading: late, but no pause
		wantTrue(t, tracker, r)
		pass(s)
		wantTrue(t, tracker, r)
		wantLog(t, log, "")

		// A Reading detects it, before the tracker itself has run again.
		r.pause(4 * s)
		if got := tracker.Reading(); got.Valid || got.NowUS == 0 {
			t.Errorf("reading right after a pause: %+v; want it not valid, though there", got)
		}
		pass(s)
		wantTrue(t, tracker, r)
		wantLog(t, log, `level=WARN msg="process was paused: the region's time is not trusted until the next sample" for=4.999s`+"\n")

		// Intervals alone do not restore trust, a sample does.
		refused := readTimeFunc(func(context.Context) (int64, error) { return 0, errors.New("connection refused") })
		r.fault.Store(&refused)
		r.pause(time.Hour)
		pass(10 * s)
		if tracker.Reading().Valid {
			t.Error("valid ten intervals after a pause, without a sample since")
		}
		r.fault.Store(nil)
		pass(s)
		wantTrue(t, tracker, r)

		// A pause during a reading makes the sample as wide as the pause, and valid.
		log.take()
		r.roundTrip.Store(int64(100 * ms))
		pass(1*s - 480*ms) // the next reading is on its way to Redis
		r.pause(10 * s)
		pass(100 * ms)
		wantTrue(t, tracker, r)
		if got := log.take(); !strings.Contains(got, "process was paused") {
			t.Errorf("log is %q, want the pause", got)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, provider := newRegistry(t)
		tracker, r, _, stop := track(t, clock.Options{Meter: provider.Meter("clock")})
		ahead := time.Duration(epochUS-time.Now().UnixMicro()) * us // of the bubble's wall clock
		r.stepped.Store(int64(2*s - ahead))
		wantScrape(t, registry, "before the first sample", "regiond_clock_steps_total 0\n")
		pass(ms)
		for range 70 { // Redis gains 100 µs a second
			pass(s)
			r.stepped.Add(int64(100 * us))
		}
		pass(s)
		wantScrape(t, registry, "with a fast clock", "regiond_clock_drift_ratio 0.0001\n"+
			"regiond_clock_offset_seconds 2.007\n"+
			"regiond_clock_steps_total 0\n"+
			"regiond_clock_uncertainty_seconds 0.000501\n")
		r.stepped.Add(-int64(time.Hour))
		pass(s)
		wantScrape(t, registry, "after a step", "regiond_clock_drift_ratio 0\n"+
			"regiond_clock_offset_seconds -3597.993\n"+
			"regiond_clock_steps_total 1\n"+
			"regiond_clock_uncertainty_seconds 0.000501\n")
		r.pause(10 * s)
		wantScrape(t, registry, "after a pause", "regiond_clock_steps_total 1\n")

		// Gauges end with Run at once, and the reading becomes invalid.
		pass(s)
		stop()
		wantTrue(t, tracker, r)
		wantScrape(t, registry, "after Run", "regiond_clock_steps_total 1\n")
		pass(5 * s)
		if tracker.Reading().Valid {
			t.Error("valid five seconds after Run has ended")
		}
	})
}

// The end of Run during a reading is no failure to log.
func TestRunEndsWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, log, stop := track(t, clock.Options{})
		r.roundTrip.Store(int64(time.Hour))
		pass(100 * ms)
		stop()
		wantLog(t, log, "")
	})
}

// For the race detector: readings while samples and steps come in. None is a time
// that no sample has left possible.
func TestReadingFromEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, r, _, _ := track(t, clock.Options{Interval: ms})
		r.roundTrip.Store(int64(100 * us))
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
		r.stepped.Add(int64(s))
		wg.Wait()
		wantTrue(t, tracker, r)
	})
}
