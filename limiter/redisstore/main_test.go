package redisstore

import (
	"flag"
	"log/slog"
	"testing"
	"time"

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
	s, err := New(Options{
		Addrs: []string{addr}, Budget: 10 * time.Second, Logger: slog.New(slog.DiscardHandler), TimeLua: timeLua,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
