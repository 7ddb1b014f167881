package redisstore

import (
	"cmp"
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/test/redisserver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // most of those that are parallel wait for servers
		panic(err)
	}
	limitertest.Main(m)
}

// ok is of a call that may not fail.
func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must is what a call returns that may not fail.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%+v: %v", v, err)
		}
		return v
	}
}

// newStore is a store of options, with a budget that shows what is decided, not how soon, and a logger of nothing where
// these are not set. It is closed when the test ends.
func newStore(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Budget = cmp.Or(o.Budget, 10*time.Second)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// newRedis is a store on the Redis at addr. timeLua is limitertest's, or "" for Redis's own clock.
func newRedis(t testing.TB, addr, timeLua string) *Store {
	t.Helper()
	return newStore(t, Options{Addrs: []string{addr}, TimeLua: timeLua})
}

// onRedis is a store on a Redis of its own.
func onRedis(t testing.TB) (*redisserver.Server, *Store) {
	t.Helper()
	srv := redisserver.Start(t, redisserver.Options{})
	return srv, newRedis(t, srv.Addr(), "")
}

// onTimedRedis is onRedis with what sets its clock.
func onTimedRedis(t testing.TB, timeLua string) (*redisserver.Server, *Store, func(us int64)) {
	t.Helper()
	srv := redisserver.Start(t, redisserver.Options{})
	return srv, newRedis(t, srv.Addr(), timeLua), limitertest.ClockOf(t, srv.Client())
}
