package limiter

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/regiond/regiond/quota"
)

// counted is an allowed decision that left nothing: it is counted in all there is.
func counted(policy string) *quota.Decision {
	limit := &quota.Limit{Name: "minute", Units: 10, Window: time.Minute}
	return &quota.Decision{Allowed: true, Policy: policy, Limits: []quota.LimitState{{Limit: limit, Ceiling: 10}}}
}

// Counting a decision builds no labels and allocates nothing, a near miss included.
func TestMetricsCostNoAllocation(t *testing.T) {
	m, err := NewMetrics(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())).Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	d := counted("standard")
	m.decided(context.Background(), d, OpCheck, time.Millisecond) // builds them once
	if n := testing.AllocsPerRun(1000, func() { m.decided(context.Background(), d, OpCheck, time.Millisecond) }); n != 0 {
		t.Errorf("a decision costs %v allocations to count", n)
	}
}

// Many learn at once, while reloads forget: whoever asks gets the labels that it
// asked for, and what is forgotten is gone.
func TestLabelSetsUnderReload(t *testing.T) {
	var s labelSets[limitLabels]
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				if n := len(s.of(limitLabels{fmt.Sprint("p", i%7), fmt.Sprint("l", g)})); n != 1 {
					t.Errorf("%d options", n)
				}
				if i%100 == 0 {
					s.keep(func(l limitLabels) bool { return l.policy != "p3" })
				}
			}
		})
	}
	wg.Wait()
	s.keep(func(l limitLabels) bool { return l.policy == "p1" })
	for l := range *s.sets.Load() {
		if l.policy != "p1" {
			t.Errorf("%v is still remembered", l)
		}
	}
	if n := len(*s.sets.Load()); n != 4 {
		t.Errorf("%d combinations are remembered, want 4", n)
	}
}
