package daemon

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/test/leaks"
)

// TestMain holds every test to what run promises: when it has returned, nothing
// of the program is left.
func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // as main does
	leaks.Main(m)
}

// silent is the logger of go-redis in tests, as in main.
type silent struct{}

// Printf implements the logger of go-redis.
func (silent) Printf(context.Context, string, ...any) {}
