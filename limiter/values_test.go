package limiter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
)

// byUser is a listed tenant, acme, whose limits count users, pairs of user and address, and
// all together.
func byUser(values int) limiter.Config {
	c := onePolicy(quota.Policy{Limits: []quota.Limit{
		{Name: "all", Units: 100_000, Window: time.Minute},
		{Name: "user", Units: 5, Window: time.Minute, By: []string{"user"}},
		{Name: "pair", Units: 5, Window: time.Second, Algorithm: quota.SlidingWindow, By: []string{"ip", "user"}},
	}})
	c.Tenants, c.MaxValues = map[string]quota.Tenant{"acme": {Policy: "standard"}, "globex": {Policy: "standard"}}, values
	return c
}

func dims(user, ip string) quota.Dimensions {
	return quota.Dimensions{{Name: "ip", Value: ip}, {Name: "user", Value: user}}
}

func (r *rig) as(t *testing.T, tenant, user, ip string) bool {
	t.Helper()
	d := must(r.Check(context.Background(), quota.Request{Tenant: tenant, Cost: 1, Dimensions: dims(user, ip)}))(t)
	return d.Allowed
}

// TestMaxValuesShares: values beyond the bound are held to one limit together, known ones
// and other tenants are not affected, and the places come back when their counts are gone.
func TestMaxValuesShares(t *testing.T) {
	now := time.Unix(1_795_198_405, 0)
	r := memoryRig(t, byUser(100), func() time.Time { return now })
	for i := range 100 {
		if !r.as(t, "acme", fmt.Sprint("known", i), "::1") {
			t.Fatalf("known user %d is denied", i)
		}
	}
	peek := func(user string) int64 {
		d := must(r.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1, Dimensions: dims(user, "::1")}))(t)
		return d.Limits[1].Remaining
	}
	if n := peek("invented"); n != 5 {
		t.Errorf("the shared partition has %d left, want 5", n)
	}
	shared := func(user string) bool {
		d := must(r.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1, Dimensions: dims(user, "::1"), Explain: true}))(t)
		return d.Explanation.Shared
	}
	if !shared("invented") || shared("known1") {
		t.Error("it is explained who shares, and wrongly")
	}
	allowed := 0
	for i := range 1000 {
		if r.as(t, "acme", fmt.Sprint("invented", i), "::1") {
			allowed++
		}
	}
	if allowed != 5 || r.count(t, "regiond.values_overflow") < 1000 {
		t.Errorf("%d of 1000 invented users were allowed, %d decisions counted, want the 5 of one limit and 1000", allowed, r.count(t, "regiond.values_overflow"))
	}
	for i := range 100 {
		for n := range 5 {
			if got, want := r.as(t, "acme", fmt.Sprint("known", i), "::1"), n < 4; got != want {
				t.Fatalf("known user %d, request %d: allowed %v, want %v", i, n+2, got, want)
			}
		}
	}
	if !r.as(t, "globex", "invented7", "::1") {
		t.Error("another tenant shares the bound")
	}
	now = now.Add(10 * time.Minute)
	for i := range 100 {
		user := fmt.Sprint("later", i)
		if shared(user) || !r.as(t, "acme", user, "::1") {
			t.Fatalf("place %d of those who left was not given away", i)
		}
	}
}

// TestMaxValuesKeepsWhoIsActive: a user that comes once in the life of its keys keeps its
// place through any flood and any reload.
func TestMaxValuesKeepsWhoIsActive(t *testing.T) {
	now := time.Unix(1_795_198_405, 0)
	r := memoryRig(t, byUser(10), func() time.Time { return now })
	for minute := range 30 {
		d, err := r.Check(context.Background(), quota.Request{Tenant: "acme", Cost: 1, Dimensions: dims("known", "::1")})
		if err != nil || !d.Allowed || d.Limits[1].Remaining < 3 {
			t.Fatalf("minute %d: %+v %v", minute, d, err)
		}
		for i := range 50 {
			r.as(t, "acme", fmt.Sprint("invented", minute, ".", i), "::1")
		}
		ok(t, r.Configure(byUser(10)))
		now = now.Add(time.Minute)
	}
}

// max_unknown bounds what invented tenants leave in Redis, however long they come: a
// partition of theirs keeps its place as long as one of its keys lives.
func TestMaxUnknownBoundsRedis(t *testing.T) {
	t.Parallel() // it measures no time
	const most, each = 100, 25
	for _, row := range []struct {
		name    string
		limits  []quota.Limit
		keys    int // of a partition
		seconds int // far longer than its keys live
	}{
		{"a log", []quota.Limit{{Name: "second", Units: 10, Window: time.Second}}, 1, 50},
		{"a log, a window, a level", []quota.Limit{
			{Name: "second", Units: 10, Window: time.Second},
			{Name: "minute", Units: 100, Window: time.Minute, Algorithm: quota.SlidingWindow},
			{Name: "shaped", Units: 1, Window: time.Second, Algorithm: quota.GCRA, Burst: 10},
		}, 3, 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			srv := miniredis.RunT(t)
			client := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1})
			defer client.Close()
			set := limitertest.ClockOf(t, client)
			at := time.UnixMicro(limitertest.Epoch)
			c := onePolicy(quota.Policy{Limits: row.limits})
			c.MaxUnknown = most
			r := newRig(t, limiter.Options{Store: limiter.NewRedis(t, srv.Addr(), limitertest.MovedLua), Config: c, Now: func() time.Time { return at }})
			worst, own := 0, int64(0)
			for second := range row.seconds {
				set(at.UnixMicro())
				for i := range each {
					r.check(t, fmt.Sprint("invented", second, ".", i), 1)
				}
				keys := 0
				for _, key := range srv.Keys() {
					if strings.HasPrefix(key, "rl:{invented") {
						keys++
					}
				}
				worst = max(worst, keys)
				at = at.Add(time.Second)
				srv.FastForward(time.Second)
			}
			own = int64(row.seconds*each) - r.count(t, "regiond.unknown_overflow")
			if worst > most*row.keys || worst < most*row.keys*9/10 || own <= most {
				t.Errorf("%d keys of invented tenants at most, want up to %d; %d had a partition of their own", worst, most*row.keys, own)
			}
		})
	}
}
