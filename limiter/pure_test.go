package limiter

import (
	"fmt"
	"math"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// A share of tenants is about that share, and a larger one only adds to it.
func TestEnforceShareOfMany(t *testing.T) {
	t.Parallel()
	const tenants = 40_000
	before := map[string]bool{}
	for _, share := range []float64{0, 1, 10, 33.3, 50, 90, 100} {
		p, enforced := &quota.Policy{Name: "standard", EnforcePercent: share}, map[string]bool{}
		for k := range tenants {
			if id := fmt.Sprint("tenant-", k); enforcement(p, nil, id) == quota.Enforce {
				enforced[id] = true
			}
		}
		for id := range before {
			if !enforced[id] {
				t.Fatalf("%s is enforced below %v%% and not at it", id, share)
			}
		}
		if want := share / 100 * tenants; math.Abs(float64(len(enforced))-want) > 400 { // four deviations
			t.Errorf("%v%% of %d tenants are %d", share, tenants, len(enforced))
		}
		before = enforced
	}
}

// What one of several processes may hold by itself, and how much more than now.
func TestLocalShare(t *testing.T) {
	const open = quota.MaxCounter
	for _, row := range []struct {
		scope               quota.Scope
		capacity, processes int64
		others              *quota.Ceiling
		ceiling, spare      int64
	}{
		{quota.ScopeRegion, 100, 1, nil, 100, open},
		{quota.ScopeRegion, 100, 3, nil, 33, open},
		{quota.ScopeRegion, 3, 4, nil, 1, open}, // in a longer window
		{quota.ScopeRegion, 100, 4, &quota.Ceiling{}, 25, open},
		{quota.ScopeGlobal, 100, 4, nil, 25, open}, // no other region has a part in it
		{quota.ScopeGlobal, 3, 4, nil, 0, open},
		{quota.ScopeGlobal, 100, 4, &quota.Ceiling{Local: 80, Used: 60}, 20, 5},
		{quota.ScopeGlobal, 100, 4, &quota.Ceiling{Local: 80, Used: 90}, 20, 0},
		{quota.ScopeGlobal, 100, 4, &quota.Ceiling{Local: 3}, 0, 0},
		{quota.ScopeGlobal, 100, 1, &quota.Ceiling{Local: -3}, 0, 0},
	} {
		ceiling, spare := localShare(&quota.Limit{Scope: row.scope}, row.capacity, row.others, row.processes)
		if ceiling != row.ceiling || spare != row.spare {
			t.Errorf("%+v: %d, %d more", row, ceiling, spare)
		}
	}
}

// Counting a decision builds no labels and allocates nothing, a near miss included.
func TestMetricsCostNoAllocation(t *testing.T) {
	m, err := newMetrics(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())).Meter("test"), &Limiter{})
	if err != nil {
		t.Fatal(err)
	}
	limit := &quota.Limit{Name: "minute", Units: 10, Window: time.Minute}
	d := &quota.Decision{Allowed: true, Policy: "standard", Limits: []quota.LimitState{{Limit: limit, Ceiling: 10}}}
	q := &query{call: store.Call{Op: store.OpCheck}}
	count := func() { m.decided(t.Context(), d, q, time.Millisecond) }
	count() // builds the labels
	if n := testing.AllocsPerRun(1000, count); n != 0 {
		t.Errorf("a decision costs %v allocations to count", n)
	}
}
