package limiter

import (
	"context"
	"fmt"
	"sync"
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

// Many learn at once, while reloads forget: whoever asks gets the labels that it
// asked for, and what is forgotten is gone.
func TestLabelSetsUnderReload(t *testing.T) {
	var s labelSets
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				if n := len(s.of(labels{policy: fmt.Sprint("p", i%7), limit: fmt.Sprint("l", g)})); n != 1 {
					t.Errorf("%d options", n)
				}
				if i%100 == 0 {
					s.forget()
				}
			}
		})
	}
	wg.Wait()
	s.forget()
	s.of(labels{policy: "p1", limit: "l1"})
	if n := len(*s.sets.Load()); n != 1 {
		t.Errorf("%d combinations are remembered after a reload, want 1", n)
	}
}
