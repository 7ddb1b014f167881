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
	"github.com/regiond/regiond/test/redisserver"
)

// perMinute reports a unit of so many a minute.
func perMinute(units int64) store.Call {
	return limitertest.Ask(&quota.Limit{Name: "l", Units: units, Window: time.Minute}).Call("acme", store.OpReport, 1, nil)
}

// The header of a log names the plan that was charged last and, for two of its windows, a
// former one that needs more; then the log shrinks. It is where the oldest element is.
func TestHeaderOfALog(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s, now := newRedis(t, srv.Addr(), limitertest.TimedLua), limitertest.ClockOf(t, srv.Client())
	us := limitertest.Epoch
	log := func(n int, units int64, step time.Duration) (first string, length int) {
		t.Helper()
		c := perMinute(units)
		for range n {
			us += step.Microseconds()
			now(us)
			if _, err := limitertest.Decide(s, c); err != nil {
				t.Fatal(err)
			}
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

// A log that an earlier release has written has no header: a lowered limit keeps all of it.
func TestLogWithoutAHeader(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s := newRedis(t, srv.Addr(), "")
	for _, row := range []struct{ name, element string }{{"plain", "%d"}, {"with costs", "%d:%d:1"}} {
		flush(t, srv.Client())
		us, low, high := srv.Time()-1_000_000, perMinute(2), perMinute(20)
		for i := range int64(20) {
			args := []any{us + i, i}
			if err := srv.Client().RPush(context.Background(), low.Keys[0], fmt.Sprintf(row.element, args[:strings.Count(row.element, "%")]...)).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for range 40 {
			if _, err := limitertest.Decide(s, low); err != nil {
				t.Fatal(err)
			}
		}
		high.Op = store.OpCheck
		if v, err := limitertest.Decide(s, high); err != nil || v[0].Outcome != store.Denied || v[0].Limits[0].Remaining != 0 {
			t.Errorf("%s: of 20 used, then 40 under a limit of 2, 20 holds %+v, %v", row.name, v, err)
		}
		if n := srv.Client().LLen(context.Background(), low.Keys[0]).Val(); n >= 28 {
			t.Errorf("%s: the log has %d elements", row.name, n)
		}
	}
}
