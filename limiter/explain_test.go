package limiter_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// TestExplainedFrees: of every algorithm, also after reports that went over and after resets, a request that is
// explained as denied fits once the explained time is over, and no microsecond earlier; and all is free when it says so.
func TestExplainedFrees(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1_700_000_000, 0)
		hour := calendarLimit(t, quota.CalendarHour, 1)
		hour.Units = 30
		limits := []quota.Limit{
			{Name: "log", Units: 7, Window: time.Second},
			{Name: "window", Units: 20, Window: time.Minute, Algorithm: quota.SlidingWindow},
			{Name: "rate", Units: 6, Window: 10 * time.Second, Burst: 9, Algorithm: quota.GCRA},
			hour,
			{Name: "world", Units: 15, Window: 7 * time.Second, Scope: quota.ScopeGlobal},
		}
		some := rapid.SliceOfNDistinct(rapid.IntRange(0, len(limits)-1), 1, 3, rapid.ID[int]).Draw(rt, "limits")
		var chosen []quota.Limit
		for _, i := range some {
			chosen = append(chosen, limits[i])
		}
		r := memoryRig(t, onePolicy(quota.Policy{Limits: chosen}), func() time.Time { return now })
		explained := func(cost int64) quota.Decision {
			d := must(r.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: cost, Explain: true}))(rt)
			return d
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4_000_000).Draw(rt, "us")) * time.Microsecond)
			cost := rapid.Int64Range(1, 7).Draw(rt, "cost")
			said := explained(cost)
			var err error
			switch rapid.SampledFrom([]string{"check", "check", "report", "reset", "wait", "free"}).Draw(rt, "step") {
			case "check":
				if got := r.check(rt, "acme", cost); got.Allowed != said.Allowed {
					rt.Fatalf("allowed %v, and it was explained as %v", got.Allowed, said.Allowed)
				}
			case "report":
				var d quota.Decision
				d, err = r.Report(context.Background(), quota.Request{Tenant: "acme", Cost: 3 * cost})
				for i, s := range d.Limits {
					if after := explained(1); after.Limits[i].Remaining != s.Remaining {
						rt.Fatalf("%d of %s are left after a report, explained as %d", s.Remaining, s.Limit.Name, after.Limits[i].Remaining)
					}
				}
			case "reset":
				if err = r.Reset(context.Background(), "acme"); !explained(cost).Allowed || !r.check(rt, "acme", cost).Allowed {
					rt.Fatal("denied after a reset")
				}
			case "wait":
				if said.Allowed {
					continue
				}
				now = now.Add(said.RetryAfter() - time.Microsecond)
				if d := explained(cost); d.Allowed {
					rt.Fatalf("it fits 1 µs before the %v that were explained: %+v", said.RetryAfter(), said.Limits)
				}
				now = now.Add(time.Microsecond)
				if d := r.check(rt, "acme", cost); !d.Allowed {
					rt.Fatalf("it does not fit after the %v that were explained: %+v, then %+v", said.RetryAfter(), said.Limits, d.Limits)
				}
			case "free":
				for _, s := range said.Limits {
					now = now.Add(max(0, s.ResetAfter))
				}
				for _, s := range explained(cost).Limits {
					if s.Remaining != s.Ceiling {
						rt.Fatalf("%d of %d are left of %s when all has freed", s.Remaining, s.Ceiling, s.Limit.Name)
					}
				}
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
	})
}
