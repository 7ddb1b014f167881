package redisstore

import (
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
	"github.com/regiond/regiond/test/redisserver"
)

// A reload lengthens a window in the second in which a log was charged under the shorter one: the
// log lives as long as the longer one needs, whichever is charged later.
func TestReloadWithinASecondKeepsTheLongerTTL(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s := newRedis(t, srv.Addr(), "")
	short := quota.Limit{Name: "l", Units: 5, Window: time.Second}
	long := quota.Limit{Name: "l", Units: 5, Window: time.Hour}
	before, after := limitertest.Ask(&short).Call("acme", store.OpCheck, 1, nil), limitertest.Ask(&long).Call("acme", store.OpCheck, 1, nil)
	admits := func(c store.Call) (n int) {
		t.Helper()
		for {
			v, err := limitertest.Decide(s, c)
			if err != nil {
				t.Fatal(v, err)
			}
			if v[0].Outcome != oracle.Admitted {
				return n
			}
			n++
		}
	}
	if v, err := limitertest.Decide(s, before); err != nil || v[0].Outcome != oracle.Admitted { // before the reload
		t.Fatal(v, err)
	}
	admits(after)
	if _, err := limitertest.Decide(s, before); err != nil { // another process has not reloaded yet
		t.Fatal(err)
	}
	if left := ttl(t, srv.Client(), limitertest.RedisKeys(&after)[0]); left < time.Hour {
		t.Errorf("the log of a window of 1h lives for %v", left)
	}
}
