package instruments

import (
	"iter"
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Counter counts under labels, with a series for each combination that was counted: what they can be must be bounded.
// Safe for concurrent use.
type Counter struct{ *CounterOf[pairs] }

// Add counts n, with the names and values of at most three labels in turn.
func (c *Counter) Add(n int64, labels ...string) {
	var p pairs
	copy(p[:], labels)
	c.CounterOf.Add(p, n)
}

// CounterOf is a counter whose labels are a value of type L, for what happens in every check: to count is an atomic
// addition, where a counter of OpenTelemetry takes a twentieth of a check. It has no exemplars; histograms have them.
// Safe for concurrent use.
type CounterOf[L comparable] struct {
	set    func(L) attribute.Set
	series atomic.Pointer[map[L]*series] // replaced, never changed

	mu sync.Mutex // of those who replace it
}

// Of makes a counter. set makes the attributes of labels, once for each.
func Of[L comparable](m *Maker, name, unit, help string, set func(L) attribute.Set) *CounterOf[L] {
	c := &CounterOf[L]{set: set}
	c.series.Store(&map[L]*series{})
	counter, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.register(name, err, counter, func(o metric.Observer) {
		for _, s := range *c.series.Load() {
			o.ObserveInt64(counter, s.n.Load(), s.attributes)
		}
	})
	return c
}

// Add counts n under labels. It allocates nothing but for labels that are new.
func (c *CounterOf[L]) Add(l L, n int64) {
	s, ok := (*c.series.Load())[l]
	if !ok {
		s = c.create(l)
	}
	s.n.Add(n)
}

// All is what was counted under each combination of labels until now.
func (c *CounterOf[L]) All() iter.Seq2[L, int64] {
	return func(yield func(L, int64) bool) {
		for l, s := range *c.series.Load() {
			if !yield(l, s.n.Load()) {
				return
			}
		}
	}
}

func (c *CounterOf[L]) create(l L) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := maps.Clone(*c.series.Load())
	if s, ok := next[l]; ok {
		return s
	}
	s := &series{attributes: metric.WithAttributeSet(c.set(l))}
	next[l] = s
	c.series.Store(&next)
	return s
}

// series is the count of one combination of labels.
type series struct {
	attributes metric.MeasurementOption
	n          atomic.Int64
}
