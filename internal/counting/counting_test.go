package counting_test

import (
	"context"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/internal/counting"
)

type labels struct{ a, b int }

func (l labels) set() attribute.Set {
	return attribute.NewSet(attribute.Int("a", l.a), attribute.Int("b", l.b))
}

// counter returns a counter and what a reader collects of it, by labels.
func counter(t testing.TB) (c *counting.Counter[labels], collect func() map[attribute.Set]int64) {
	reader := metric.NewManualReader()
	c, err := counting.New(metric.NewMeterProvider(metric.WithReader(reader)).Meter("test"), "things", "{thing}", "Things.", labels.set)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() map[attribute.Set]int64 {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Fatal(err)
		}
		found := make(map[attribute.Set]int64)
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				sum, ok := m.Data.(metricdata.Sum[int64])
				if !ok || !sum.IsMonotonic || sum.Temporality != metricdata.CumulativeTemporality || m.Name != "things" || m.Unit != "{thing}" {
					t.Fatalf("%+v is no counter of things", m)
				}
				for _, p := range sum.DataPoints {
					found[p.Attributes] = p.Value
				}
			}
		}
		return found
	}
}

// Nothing is lost or counted twice while many count and labels appear, and a reader never sees a count go down.
func TestConcurrent(t *testing.T) {
	const each, by = 5000, 4
	c, collect := counter(t)
	var all sync.WaitGroup
	for g := range by {
		all.Go(func() {
			for i := range each {
				c.Add(labels{i % 7, g % 2}, int64(i%3))
			}
		})
	}
	last := collect()
	for range 50 {
		now := collect()
		for set, n := range last {
			if now[set] < n {
				t.Errorf("%v fell from %d to %d", set, n, now[set])
			}
		}
		last = now
	}
	all.Wait()
	want := make(map[attribute.Set]int64)
	for g := range by {
		for i := range each {
			want[labels{i % 7, g % 2}.set()] += int64(i % 3)
		}
	}
	got := collect()
	if len(got) != len(want) {
		t.Errorf("%d series, want %d", len(got), len(want))
	}
	for set, n := range want {
		if got[set] != n {
			t.Errorf("%v: %d, want %d", set, got[set], n)
		}
	}
}

// Series appear when they are first counted, with 0 too.
func TestSeriesAppear(t *testing.T) {
	c, collect := counter(t)
	if got := collect(); len(got) != 0 {
		t.Errorf("%v before anything was counted", got)
	}
	c.Add(labels{1, 2}, 0)
	if got := collect(); len(got) != 1 {
		t.Errorf("%v after a count of 0", got)
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	c, _ := counter(t)
	c.Add(labels{}, 1)
	if n := testing.AllocsPerRun(1000, func() { c.Add(labels{}, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	c, _ := counter(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Add(labels{}, 1)
		}
	})
}
