package redisstore

import (
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/limiter/limitertest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // most of those that are parallel wait for servers
		panic(err)
	}
	limitertest.Main(m)
}

// newRedis is a store on the Redis at addr that shows what is decided, not how soon. timeLua
// is limitertest's, or "" for Redis's own clock.
func newRedis(t testing.TB, addr, timeLua string) *Store {
	t.Helper()
	return newWatchful(t, addr, timeLua, nil)
}

// newWatchful is newRedis with a monotonic clock; nil stands still, if time is moved by hand.
func newWatchful(t testing.TB, addr, timeLua string, now func() time.Duration) *Store {
	t.Helper()
	if now == nil && timeLua != "" {
		now = func() time.Duration { return 0 }
	}
	of, err := clock.New(clock.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{
		Addrs: []string{addr}, Budget: 10 * time.Second, Logger: slog.New(slog.DiscardHandler), TimeLua: timeLua, Clock: of,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
