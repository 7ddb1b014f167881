package daemon

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// TestMain holds every test to what run promises: when it has returned, nothing
// of the program is left.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // as main does
	goleak.VerifyTestMain(m,
		// After enough failed dials the Redis client looks once a second whether
		// Redis is back, and notices only then that it has been closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// silent is the logger of go-redis in tests, as in main.
type silent struct{}

// Printf implements the logger of go-redis.
func (silent) Printf(context.Context, string, ...any) {}
