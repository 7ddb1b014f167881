package limiter

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// counted is an allowed decision that left nothing: it is counted in all there is.
func counted(policy string) *quota.Decision {
	limit := &quota.Limit{Name: "minute", Units: 10, Window: time.Minute}
	return &quota.Decision{Allowed: true, Policy: policy, Limits: []quota.LimitState{{Limit: limit, Ceiling: 10}}}
}

// Counting a decision builds no labels and allocates nothing, a near miss included.
func TestMetricsCostNoAllocation(t *testing.T) {
	m, err := newMetrics(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())).Meter("test"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := counted("standard")
	m.decided(context.Background(), d, store.OpCheck, time.Millisecond) // builds them once
	if n := testing.AllocsPerRun(1000, func() { m.decided(context.Background(), d, store.OpCheck, time.Millisecond) }); n != 0 {
		t.Errorf("a decision costs %v allocations to count", n)
	}
}
