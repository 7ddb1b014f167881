package limiter_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/top"
	"github.com/regiond/regiond/quota"
)

func newTop(t testing.TB) *top.Recorder {
	t.Helper()
	r := must(top.NewRecorder(nil, noop.Meter{}))(t)
	return r
}

// TestTop: of any requests the ranking has exactly what their answers say, remembered denials
// too: the units that each limit denied, or that were used under it.
func TestTop(t *testing.T) {
	policies := []quota.Policy{
		{Name: "standard", EnforcePercent: -1, Limits: []quota.Limit{
			// Not in the order of their keys: burst and daily share one.
			{Name: "burst", Units: 6, Window: time.Minute},
			{Name: "per-user", Units: 4, Window: time.Hour, By: []string{"user"}},
			{Name: "daily", Units: 15, Window: time.Hour},
			{Name: "smooth", Units: 9, Window: time.Hour, Algorithm: quota.GCRA, Burst: 9, When: []quota.Match{{Dimension: "user", Value: "a"}}},
		}},
		{Name: "watched", EnforcePercent: -1, Enforcement: quota.Observe, Limits: []quota.Limit{{Name: "minute", Units: 3, Window: time.Minute}}},
	}
	c := limiter.Config{Policies: policies, Tenants: map[string]quota.Tenant{"known": {Policy: "standard"}}, Default: &quota.Tenant{Policy: "standard"}, MaxUnknown: 1000}
	partitions := map[string]map[string]string{ // by limit and user
		"burst": {"": "::", "a": "::", "b": "::"}, "daily": {"": "::", "a": "::", "b": "::"}, "minute": {"": "::", "a": "::", "b": "::"},
		"per-user": {"": "user:-:", "a": "user:1.a:", "b": "user:1.b:"}, "smooth": {"a": "::user=1.a"},
	}
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		r := newTop(outer)
		l := newRig(outer, limiter.Options{Config: c, Top: r})
		exact := [2]map[quota.TopRow]int64{{}, {}}
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			q := quota.Request{Tenant: rapid.SampledFrom([]string{"known", "x"}).Draw(t, "tenant"), Cost: rapid.Int64Range(1, 3).Draw(t, "cost")}
			q.Policy = rapid.SampledFrom([]string{"standard", "standard", "watched"}).Draw(t, "policy")
			user := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "user")
			if user != "" {
				q.Dimensions = quota.Dimensions{{Name: "user", Value: user}}
			}
			if rapid.IntRange(0, 3).Draw(t, "keyed") == 0 {
				q.IdempotencyKey = rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key")
			}
			op := rapid.SampledFrom([]string{"check", "check", "check", "report", "peek"}).Draw(t, "op")
			d, err := map[string]func(context.Context, quota.Request) (quota.Decision, error){
				"check": l.Check, "report": l.Report, "peek": l.Peek,
			}[op](t.Context(), q)
			if err != nil || op == "peek" || d.Replayed {
				continue // a key that came with another request, or nothing was decided
			}
			by := quota.TopUsed
			if !d.Allowed || d.WouldDeny {
				by = quota.TopDenied
			}
			for i := range d.Limits {
				if s := &d.Limits[i]; by == quota.TopUsed || s.Denied {
					exact[by][quota.TopRow{Tenant: q.Tenant, Policy: q.Policy, Limit: s.Limit.Name, Partition: partitions[s.Limit.Name][user]}] += q.Cost
				}
			}
		}
		for by := range exact {
			v := r.Report(quota.TopQuery{By: quota.TopBy(by), Window: time.Minute, Rows: quota.MaxTopRows}, "local")
			if len(v.Rows) != len(exact[by]) || v.OthersAtMost != 0 {
				t.Fatalf("%v: %+v, want %v", v.By, v, exact[by])
			}
			for _, row := range v.Rows {
				name := row
				name.AtLeast, name.AtMost = 0, 0
				if truth := exact[by][name]; row.AtLeast != truth || row.AtMost != truth {
					t.Fatalf("%v: %+v, want %d", v.By, row, truth)
				}
			}
		}
	})
}

// TestTopShares: what unlisted tenants beyond max_unknown are denied shows as the partition that they share.
func TestTopShares(t *testing.T) {
	c := onePolicy(quota.Policy{Limits: perMinute(1)})
	c.MaxUnknown = 0
	r := newTop(t)
	l := newRig(t, limiter.Options{Config: c, Top: r})
	for _, tenant := range []string{"a", "b", "c"} {
		must(l.Check(t.Context(), quota.Request{Tenant: tenant, Cost: 1}))(t)
	}
	v := r.Report(quota.TopQuery{By: quota.TopDenied, Window: time.Hour, Rows: 9}, "local")
	if len(v.Rows) != 1 || v.Rows[0] != (quota.TopRow{Policy: "standard", Limit: "minute", Partition: "::", AtLeast: 2, AtMost: 2}) || v.Total != 2 {
		t.Errorf("%+v", v)
	}
}

// BenchmarkTop is a check in memory without and with the ranking, of all that it costs: a remembered denial, which is
// the cheapest, and an admission.
func BenchmarkTop(b *testing.B) {
	for _, row := range []struct {
		name  string
		units int64
	}{{"denied", 1}, {"allowed", 1 << 40}} {
		c := onePolicy(quota.Policy{Limits: []quota.Limit{{Name: "minute", Units: row.units, Window: time.Minute, Algorithm: quota.SlidingWindow}}})
		for name, r := range map[string]*top.Recorder{"without": nil, "with": newTop(b)} {
			b.Run(row.name+"/"+name, func(b *testing.B) {
				l := newRig(b, limiter.Options{Config: c, Top: r})
				ctx, cancel := context.WithCancel(b.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					if r != nil {
						_ = r.Run(ctx)
					}
				}()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := l.Check(ctx, quota.Request{Tenant: "acme", Cost: 1}); err != nil {
						b.Fatal(err)
					}
				}
				cancel()
				<-done
			})
		}
	}
}
