package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
)

// TestKeysOutliveTwoWindows: no answer may depend on a key that expired, so after each charge every key that it touches
// lives for two windows and a margin, or for as long as a level drains. Logs and counters may live for a window more, since their
// life is set once a window. The record of an admission lives for as long as it is replayed.
func TestKeysOutliveTwoWindows(t *testing.T) {
	srv, s, now := onTimedRedis(t, limitertest.MovedLua)
	const w, spent = 10 * time.Minute, 30 * time.Second // half of the margin may pass while this runs
	for _, row := range []struct {
		name  string
		limit quota.Limit
		least time.Duration // that it lives after a charge
	}{
		{"log", quota.Limit{Units: 5, Window: w}, 2*w + time.Minute},
		{"window", quota.Limit{Units: 5, Window: w, Algorithm: quota.SlidingWindow}, 2*w + time.Minute},
		{"global log", quota.Limit{Units: 5, Window: w, Scope: quota.ScopeGlobal}, 2*w + time.Minute},
		{"global window", quota.Limit{Units: 5, Window: w, Algorithm: quota.SlidingWindow, Scope: quota.ScopeGlobal}, 2*w + time.Minute},
		{"bounded log", quota.Limit{Units: 5, Window: w, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict}, 2*w + time.Minute},
		{"level", quota.Limit{Units: 5, Window: w, Algorithm: quota.GCRA}, w/5 + time.Minute},
		{"level with a high burst", quota.Limit{Units: 5, Window: w, Algorithm: quota.GCRA, Burst: 50}, w/5 + time.Minute},
		{"log of 40 s", quota.Limit{Units: 5, Window: 40 * time.Second}, 2 * time.Minute},
	} {
		flush(t, srv.Client())
		l := row.limit
		l.Name = "l"
		call := limitertest.Ask(&l).Call("acme", store.OpCheck, 1, nil)
		keys := limitertest.RedisKeys(&call)
		again := call // on a plain log this takes the short way
		call.Record, call.Print = "rl:{acme}:i:4.acme:k1", "p"
		us := limitertest.Epoch
		for i, wait := range []time.Duration{0, 0, l.Window / 3, l.Window / 3, l.Window / 3, l.Window / 3, 3 * l.Window / 2, l.Window} {
			us += wait.Microseconds()
			now(us)
			for _, key := range keys { // as if this time had passed
				if left := ttl(t, srv.Client(), key) - wait; i > 0 && left > 0 && srv.Client().PExpire(context.Background(), key, left).Err() != nil {
					t.Fatal("no PEXPIRE")
				}
			}
			c := again
			if i == 0 {
				c = call
			}
			if v, err := limitertest.Decide(s, c); err != nil || v[0].Outcome != oracle.Admitted {
				t.Fatalf("%s: %+v, %v", row.name, v, err)
			}
			if left := ttl(t, srv.Client(), call.Record); i == 0 && left < time.Minute {
				t.Errorf("%s: a record lives for %v, and is replayed for a minute", row.name, left)
			}
			for _, key := range keys {
				left, most := ttl(t, srv.Client(), key), row.least+l.Window*104/100
				if left < row.least-spent || left > most {
					t.Errorf("%s: after charge %d %s lives for %v, want %v to %v", row.name, i+1, key, left, row.least, most)
				}
			}
		}
	}
}

// TestShortKeysAreShort: keys do not outlive by far what they are needed for, since a flood
// of new tenants fills Redis with them.
func TestShortKeysAreShort(t *testing.T) {
	srv, s := onRedis(t)
	for _, row := range []struct {
		limit quota.Limit
		cost  int64
		most  time.Duration
		plan  time.Duration // KeyPlan.TTL
	}{
		{quota.Limit{Units: 5, Window: time.Second}, 1, 4 * time.Second, 5 * time.Second},
		{quota.Limit{Units: 5, Window: time.Second, Algorithm: quota.SlidingWindow}, 1, 4 * time.Second, 4 * time.Second},
		{quota.Limit{Units: 1, Window: time.Second, Algorithm: quota.GCRA, Burst: 86_400}, 1, 3 * time.Second, 4*24*time.Hour + 2*time.Second},
		{quota.Limit{Units: 1, Window: time.Second, Algorithm: quota.GCRA, Burst: 86_400}, 3600, time.Hour + 2*time.Second, 4*24*time.Hour + 2*time.Second},
		{quota.Limit{Units: 5, Window: time.Hour}, 1, 2*time.Hour + time.Minute, 3*time.Hour + time.Minute},
	} {
		flush(t, srv.Client())
		l := row.limit
		l.Name = "l"
		call := limitertest.Ask(&l).Call("acme", store.OpCheck, row.cost, nil)
		if v, err := limitertest.Decide(s, call); err != nil || v[0].Outcome != oracle.Admitted {
			t.Fatalf("%v: %+v, %v", l, v, err)
		}
		if left := ttl(t, srv.Client(), call.Keys[0]); left > row.most || left < 0 {
			t.Errorf("%s lives for %v, want at most %v", call.Keys[0], left, row.most)
		}
		if got := call.Plan.TTL(); got != row.plan {
			t.Errorf("%s may live for %v by its plan, want %v", call.Keys[0], got, row.plan)
		}
	}
}

func ttl(t *testing.T, c *redis.Client, key string) time.Duration {
	t.Helper()
	left := must(c.PTTL(context.Background(), key).Result())(t)
	return left
}

// A reload lengthens a window in the second in which a log was charged under the shorter one: the
// log lives as long as the longer one needs, whichever is charged later.
func TestReloadWithinASecondKeepsTheLongerTTL(t *testing.T) {
	srv, s := onRedis(t)
	short := quota.Limit{Name: "l", Units: 5, Window: time.Second}
	long := quota.Limit{Name: "l", Units: 5, Window: time.Hour}
	before, after := limitertest.Ask(&short).Call("acme", store.OpCheck, 1, nil), limitertest.Ask(&long).Call("acme", store.OpCheck, 1, nil)
	admits := func(c store.Call) (n int) {
		t.Helper()
		for {
			v := must(limitertest.Decide(s, c))(t)
			if v[0].Outcome != oracle.Admitted {
				return n
			}
			n++
		}
	}
	for range 3 { // before the reload
		if v, err := limitertest.Decide(s, before); err != nil || v[0].Outcome != oracle.Admitted {
			t.Fatal(v, err)
		}
	}
	admits(after)
	must(limitertest.Decide(s, before))(t) // another process has not reloaded yet
	if left := ttl(t, srv.Client(), limitertest.RedisKeys(&after)[0]); left < time.Hour {
		t.Errorf("the log of a window of 1h lives for %v", left)
	}
}
