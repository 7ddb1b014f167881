package clock_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/test/redisserver"
)

// patience bounds waits for what must happen; nothing here takes that long.
const patience = 20 * time.Second

// messages passes on what is logged.
type messages struct {
	slog.Handler
	c chan slog.Record
}

func (m messages) Handle(_ context.Context, r slog.Record) error {
	m.c <- r
	return nil
}

// await returns the attributes of the next message of that text. Others may come
// before it: on a starved machine a reading can time out, or the process stand still.
func (m messages) await(t *testing.T, text string) map[string]slog.Value {
	t.Helper()
	for late := time.After(patience); ; {
		select {
		case r := <-m.c:
			if r.Message != text {
				continue
			}
			attrs := make(map[string]slog.Value)
			r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value; return true })
			return attrs
		case <-late:
			t.Fatalf("%q was not logged within %v", text, patience)
		}
	}
}

// TestOnRealRedis: a running redis-server's clock is stepped by an hour and by a
// second, both ways, and the server is killed and comes back.
func TestOnRealRedis(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{Clock: true})
	client := goredis.NewClient(&goredis.Options{
		Addr: srv.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, PipelinePoolSize: -1,
	})
	defer client.Close()
	log := messages{c: make(chan slog.Record, 100)}
	log.Handler = slog.NewTextHandler(io.Discard, nil) // says which levels are enabled
	sampled := make(chan struct{})
	tracker, err := clock.New(clock.Options{
		Interval: 200 * ms,
		Logger:   slog.New(log),
		Read: func(ctx context.Context) (int64, error) {
			now, err := client.Time(ctx).Result()
			if err == nil {
				select {
				case sampled <- struct{}{}:
				default:
				}
			}
			return now.UnixMicro(), err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tracker.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// wantTIME holds a reading against the server's own word: TIME asked between
	// two readings lies between them, give or take their uncertainties.
	wantTIME := func() {
		t.Helper()
		before := tracker.Reading()
		us := srv.Time()
		after := tracker.Reading()
		if us < before.NowUS-before.Uncertainty.Microseconds()-1 || us > after.NowUS+after.Uncertainty.Microseconds()+1 {
			t.Errorf("TIME is %d, read as %d ± %v to %d ± %v", us,
				before.NowUS, before.Uncertainty, after.NowUS, after.Uncertainty)
		}
	}

	await(t, sampled)
	await(t, sampled) // the first has been taken in
	wantTIME()
	for _, step := range []time.Duration{time.Hour, -time.Hour, s, -s} {
		srv.Step(step)
		attrs := log.await(t, "redis clock stepped")
		if got := attrs["step"].Duration(); (got - step).Abs() > 200*ms {
			t.Errorf("stepped by %v, found %v", step, got)
		}
		wantTIME()
	}

	srv.Kill()
	log.await(t, "redis TIME cannot be read: the region's time is extrapolated")
	srv.Restart()
	log.await(t, "redis TIME is read again")
	wantTIME()
}

func await(t *testing.T, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(patience):
		t.Fatalf("what was awaited has not come within %v", patience)
	}
}
