package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/test/redisserver"
)

// miniClient starts a miniredis and looks into it.
func miniClient(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1, PipelinePoolSize: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

// timedMiniredis starts stores on a miniredis of their own for the suite.
func timedMiniredis(t testing.TB) (limiter.Store, func(us int64)) {
	c := miniClient(t)
	return limiter.NewTimedRedis(t, c.Options().Addr), clockOf(t, c)
}

// TestMiniredis lets the scripts be carried by miniredis in tests of other rooms
// that need time to be faked. Exactness is never shown on it: see below.
func TestMiniredis(t *testing.T) {
	t.Run("conformance", func(t *testing.T) { limitertest.Run(t, timedMiniredis) })
	t.Run("programs", func(t *testing.T) { limitertest.RunPrograms(t, timedMiniredis) })
}

// TestMiniredisDiffers is the list of where miniredis is not Redis, as far as a
// decision script could notice. The first two hide the worst mistake that one
// can make; the next four change what garbage in a key does.
func TestMiniredisDiffers(t *testing.T) {
	srv, mini := redisserver.Start(t, redisserver.Options{}), miniClient(t)
	ctx := context.Background()
	for _, row := range []struct{ what, script, redis, mini string }{
		{
			"tostring keeps 14 digits, here all",
			`return tostring(1795198405260197)`, "1.7951984052602e+15", "1795198405260197",
		},
		{
			"and so does joining a number to a text",
			`return 'at ' .. 1795198405260197`, "at 1.7951984052602e+15", "at 1795198405260197",
		},
		{
			"nan is a number, here it is no number",
			`return tostring(tonumber('nan'))`, "nan", "nil",
		},
		{
			"inf too",
			`return tostring(tonumber('inf'))`, "inf", "nil",
		},
		{
			"so are more digits than a float has room for",
			`return tostring(tonumber(string.rep('9', 400)))`, "inf", "nil",
		},
		{
			"and exponents",
			`return tostring(tonumber('1e3'))`, "1000", "nil",
		},
		{
			"what is not a number is spelled otherwise",
			`return string.format('%.0f', 0/0)`, "-nan", "NaN",
		},
		{
			"a command's error begins with its code, here with a place",
			`redis.call('SET', KEYS[1], 'text') local _, e = pcall(redis.call, 'LPUSH', KEYS[1], 'x') return type(e) == 'table' and e.err or e`,
			"WRONGTYPE Operation against a key holding the wrong kind of value",
			":1: WRONGTYPE Operation against a key holding the wrong kind of value",
		},
	} {
		for _, side := range []struct {
			name, want string
			client     *redis.Client
		}{{"redis", row.redis, srv.Client()}, {"miniredis", row.mini, mini}} {
			if got, err := side.client.Eval(ctx, row.script, []string{"k"}).Text(); got != side.want {
				t.Errorf("%s: %s says %q (%v), want %q", row.what, side.name, got, err, side.want)
			}
		}
	}
}

// TestMiniredisExpiresNothing: its keys outlive their TTL until a test moves its
// time by hand, while those of Redis are gone by themselves.
func TestMiniredisExpiresNothing(t *testing.T) {
	srv, mini := redisserver.Start(t, redisserver.Options{}), miniClient(t)
	ctx := context.Background()
	for _, c := range []*redis.Client{srv.Client(), mini} {
		if err := c.Set(ctx, "k", "v", 20*time.Millisecond).Err(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 5*time.Second, "the key of redis is gone", func() bool { return srv.Client().Exists(ctx, "k").Val() == 0 })
	if mini.Exists(ctx, "k").Val() != 1 {
		t.Error("the key of miniredis is gone too")
	}
}
