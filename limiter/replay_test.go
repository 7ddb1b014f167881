package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
)

// An admission is replayed under whatever limits are in force by then: it is the same
// answer, about those limits, and charges nothing.
func TestReplayAfterAReload(t *testing.T) {
	burst := quota.Limit{Name: "burst", Units: 20, Window: time.Second}
	sustained := quota.Limit{Name: "sustained", Units: 600, Window: time.Minute}
	smooth := quota.Limit{Name: "smooth", Units: 600, Window: time.Minute, Algorithm: quota.GCRA}
	limits := func(ls ...quota.Limit) limiter.Config { return onePolicy(quota.Policy{Limits: ls}) }
	for _, row := range []struct {
		what     string
		was, now limiter.Config
	}{
		{"as before", limits(burst, sustained), limits(burst, sustained)},
		{"the last is gone", limits(burst, sustained), limits(burst)},
		{"the first is gone", limits(burst, sustained), limits(sustained)},
		{"one more", limits(burst), limits(burst, sustained)},
		{"one more, of another order in the store", limits(burst), limits(burst, smooth, sustained)},
		{"fewer, of another order in the store", limits(burst, smooth, sustained), limits(smooth, burst)},
	} {
		for _, away := range []bool{false, true} {
			w := newWeather(t, row.was)
			if away {
				w.fails(quota.ReasonRedisDown, false)
			}
			request := quota.Request{Tenant: "acme", Cost: 3, IdempotencyKey: "k", Explain: true}
			first, err := w.Check(context.Background(), request)
			if err != nil || !first.Allowed || first.Replayed {
				t.Fatalf("%s: %+v %v", row.what, first, err)
			}
			if err := w.Configure(row.now); err != nil {
				t.Fatal(err)
			}
			again, err := w.Check(context.Background(), request)
			if err != nil || !again.Allowed || !again.Replayed {
				t.Errorf("%s, store away %v: %+v %v, want the admission again", row.what, away, again, err)
			}
			left, err := w.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			for i, l := range row.now.Policies[0].Limits {
				if s := again.Limits[i]; s.Limit.Name != l.Name || s.Denied || s.RetryAfter != 0 {
					t.Errorf("%s, store away %v: limit %d is told as %+v, want %s with room", row.what, away, i, s, l.Name)
				}
				if s := left.Limits[i]; s.Remaining < l.Units-3 {
					t.Errorf("%s, store away %v: %d of %s remain after one charge of 3", row.what, away, s.Remaining, l.Name)
				}
			}
		}
	}
}
