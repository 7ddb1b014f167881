package redisstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// perMinute reports a unit of so many a minute.
func perMinute(units int64) store.Call {
	return limitertest.Ask(&quota.Limit{Name: "l", Units: units, Window: time.Minute}).Call("acme", store.OpReport, 1, nil)
}

// The header of a log names the plan that was charged last and, for two of its windows, a
// former one that needs more; then the log shrinks. It is where the oldest element is.
func TestHeaderOfALog(t *testing.T) {
	srv, s, now := onTimedRedis(t, limitertest.TimedLua)
	us := limitertest.Epoch
	log := func(n int, units int64, step time.Duration) (first string, length int) {
		t.Helper()
		c := perMinute(units)
		for range n {
			us += step.Microseconds()
			now(us)
			must(limitertest.Decide(s, c))(t)
		}
		all := srv.Client().LRange(context.Background(), c.Keys[0], 0, -1).Val()
		for _, e := range all[1:] {
			if strings.ContainsAny(e, ".,") {
				t.Errorf("a header at %q, which is not the oldest", e)
			}
		}
		return all[0][16:], len(all)
	}
	if got, n := log(40, 20, time.Second); got != ".0022060000000" || n < 20 || n >= 28 {
		t.Errorf("of 20 units it is %q, in a log of %d", got, n)
	}
	ends := us + 2*time.Minute.Microseconds()
	if got, n := log(40, 5, time.Second); got != fmt.Sprintf(".001560000000,20,60000000,%d", ends) || n < 20 || n >= 28 {
		t.Errorf("lowered to 5 it is %q, in a log of %d", got, n)
	}
	if got, n := log(100, 5, time.Second); got != ".001560000000" || n < 5 || n >= 13 {
		t.Errorf("after two windows it is %q, in a log of %d", got, n)
	}
}
