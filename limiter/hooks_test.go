package limiter

import (
	"log/slog"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/redisstore"
)

// NewRedis is a store on the Redis at addr that shows what is decided, not how soon. timeLua
// is limitertest's, or "" for Redis's own clock.
func NewRedis(t testing.TB, addr, timeLua string) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(redisstore.Options{
		Addrs: []string{addr}, Budget: 10 * time.Second, Logger: slog.New(slog.DiscardHandler), TimeLua: timeLua,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
