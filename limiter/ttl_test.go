package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
	"github.com/regiond/regiond/test/redisserver"
)

// TestKeysOutliveTwoWindows: no answer may depend on a key that expired, so every key
// that a charge touches lives for two windows and a margin from then on, or for as
// long as a level drains; an admission's record for as long as it is replayed. The first
// charge of each second renews it.
func TestKeysOutliveTwoWindows(t *testing.T) {
	t.Parallel() // it mostly waits for the next second
	srv := redisserver.Start(t, redisserver.Options{})
	store := limiter.NewPatientRedis(t, srv.Addr())
	const w, margin = 10 * time.Minute, 30 * time.Second // half of the margin may pass while this runs
	for _, row := range []struct {
		name  string
		limit quota.Limit
		lives time.Duration
	}{
		{"log", quota.Limit{Units: 5}, 2*w + margin},
		{"window", quota.Limit{Units: 5, Algorithm: quota.SlidingWindow}, 2*w + margin},
		{"global log", quota.Limit{Units: 5, Scope: quota.ScopeGlobal}, 2*w + margin},
		{"global window, fine", quota.Limit{Units: 5, Algorithm: quota.SlidingWindow, Scope: quota.ScopeGlobal, GlobalBuckets: 11}, 2*w + margin},
		{"level", quota.Limit{Units: 5, Algorithm: quota.GCRA}, w + margin},
		{"level with a high burst", quota.Limit{Units: 5, Algorithm: quota.GCRA, Burst: 50}, 10*w + margin},
	} {
		flush(t, srv.Client())
		l := row.limit
		l.Name, l.Window = "l", w
		call := limitertest.Ask(&l).Call("acme", limiter.OpCheck, 1, nil)
		keys := limiter.RedisKeys(&call)
		call.Record, call.Print = "rl:{acme}:i:4.acme:k1", "p"
		again := call
		again.Record, again.Print = "", "" // on a plain log this takes the short way
		for i, c := range []limiter.Call{call, again} {
			if i > 0 {
				nextSecond(t, srv.Client())
			}
			if v, err := ask(store, c); err != nil || v[0].Err != nil || v[0].Outcome != oracle.Admitted {
				t.Fatalf("%s: %+v, %v", row.name, v, err)
			}
			for _, key := range keys {
				if left := ttl(t, srv.Client(), key); left < row.lives {
					t.Errorf("%s: %v after charge %d %s lives for %v, want %v", row.name, l.Algorithm, i+1, key, left, row.lives)
				}
				// As if most of its time had passed: the next charge has to renew it.
				if err := srv.Client().PExpire(context.Background(), key, time.Minute).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if left := ttl(t, srv.Client(), call.Record); left < time.Minute {
			t.Errorf("%s: the record of an admission lives for %v, it is replayed for a minute", row.name, left)
		}
	}
}

// nextSecond waits until the store's clock is in another second.
func nextSecond(t *testing.T, c *redis.Client) {
	t.Helper()
	second := int64(0)
	for {
		now, err := c.Time(context.Background()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if second != 0 && now.Unix() != second {
			return
		}
		second = now.Unix()
	}
}

func ttl(t *testing.T, c *redis.Client, key string) time.Duration {
	t.Helper()
	left, err := c.PTTL(context.Background(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return left
}
