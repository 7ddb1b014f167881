package redisstore

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
)

// miniClient starts a miniredis and looks into it.
func miniClient(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1, PipelinePoolSize: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

// timedMiniredis starts stores on a miniredis of their own for the suite.
func timedMiniredis(t testing.TB) (store.Store, func(us int64)) {
	c := miniClient(t)
	return newRedis(t, c.Options().Addr, limitertest.TimedLua), limitertest.ClockOf(t, c)
}

// TestMiniredis shows that miniredis carries the scripts, for tests that fake time.
func TestMiniredis(t *testing.T) {
	t.Parallel() // it measures no time
	limitertest.Run(t, timedMiniredis)
	limitertest.Holds(t, timedMiniredis)
}
