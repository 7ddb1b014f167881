package instruments_test

import (
	"context"
	"maps"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/internal/base/instruments"
)

type labels struct{ a, b int }

func (l labels) set() attribute.Set {
	return attribute.NewSet(attribute.Int("a", l.a), attribute.Int("b", l.b))
}

// counter returns a counter and what a reader collects of it, by labels.
func counter(t testing.TB) (c *instruments.CounterOf[labels], collect func() map[attribute.Set]int64) {
	cs, collect := counters(t, 1)
	return cs[0], collect
}

// counters returns n counters of one name on one meter.
func counters(t testing.TB, n int) (cs []*instruments.CounterOf[labels], collect func() map[attribute.Set]int64) {
	reader := metric.NewManualReader()
	meter := metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	for range n {
		m := instruments.On(meter)
		cs = append(cs, instruments.Of(m, "things", "{thing}", "Things.", labels.set))
		if err := m.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return cs, func() map[attribute.Set]int64 {
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

// Two listeners count under one name: what both counted is there, and added up under equal labels.
func TestOneName(t *testing.T) {
	cs, collect := counters(t, 2)
	cs[0].Add(labels{1, 0}, 1)
	cs[0].Add(labels{3, 0}, 5)
	cs[1].Add(labels{2, 0}, 2)
	cs[1].Add(labels{3, 0}, 7)
	want := map[attribute.Set]int64{labels{1, 0}.set(): 1, labels{2, 0}.set(): 2, labels{3, 0}.set(): 12}
	if got := collect(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
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

func TestAddAllocatesNothing(t *testing.T) {
	c, _ := counter(t)
	c.Add(labels{}, 1)
	if n := testing.AllocsPerRun(1000, func() { c.Add(labels{}, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	byName := instruments.On(nil).CounterBy("things", "{thing}", "Things.", "kind", "a")
	if n := testing.AllocsPerRun(1000, func() { byName.Add(1, "kind", "a") }); n != 0 {
		t.Errorf("%v allocations of labels by name", n)
	}
}
