package limiter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// TestExplainedIsDecided: what is explained is what the next check gets, and however often it is
// asked for it spends nothing.
func TestExplainedIsDecided(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1_700_000_000, 0)
		r := memoryRig(t, onePolicy(quota.Policy{Limits: []quota.Limit{
			{Name: "burst", Units: 5, Window: time.Second}, {Name: "minute", Units: 20, Window: time.Minute},
		}}), func() time.Time { return now })
		for range rapid.IntRange(1, 30).Draw(rt, "checks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
			request := quota.Request{Tenant: "acme", Cost: rapid.Int64Range(1, 5).Draw(rt, "cost"), Explain: true}
			var said quota.Decision
			for range rapid.IntRange(1, 3).Draw(rt, "times") {
				d, err := r.Peek(context.Background(), request)
				if err != nil {
					rt.Fatal(err)
				}
				said = d
			}
			got := r.check(rt, "acme", request.Cost)
			if got.Allowed != said.Allowed {
				rt.Fatalf("allowed %v, and it was explained as %v", got.Allowed, said.Allowed)
			}
			for i, s := range said.Limits {
				if got.Basis == quota.BasisCached {
					continue // its figures are those of the denial that it remembers
				}
				if wait := got.Limits[i].RetryAfter; wait != s.RetryAfter {
					rt.Fatalf("it fits %s in %v, and it was explained as %v", s.Limit.Name, wait, s.RetryAfter)
				}
				spent := request.Cost
				if !said.Allowed {
					spent = 0
				}
				if left := got.Limits[i].Remaining; left != s.Remaining-spent {
					rt.Fatalf("%d of %s are left after %d, explained with %d", left, s.Limit.Name, request.Cost, s.Remaining)
				}
			}
			lines := said.Explanation.Sentences
			if refused := strings.Contains(lines[0], " does not let tenant acme spend "); refused == said.Allowed || len(lines) < 1+2*len(said.Limits) {
				rt.Fatalf("allowed %v, and it says %q", said.Allowed, lines)
			}
		}
	})
}
