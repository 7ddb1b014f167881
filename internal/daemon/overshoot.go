package daemon

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// overshoot measures what the promise about global limits is worth: one window
// later every region knows what all of them admitted in it.
type overshoot struct {
	ratio metric.Float64Histogram

	mu    sync.Mutex
	worst map[string]float64 // by "<policy>.<limit>"
}

func newOvershoot(m metric.Meter) (*overshoot, error) {
	o := &overshoot{worst: map[string]float64{}}
	var err, err2 error
	o.ratio, err = m.Float64Histogram("regiond.global.usage.ratio",
		metric.WithDescription("What all regions admitted in an aligned window of a global limit, divided by the limit, per partition."),
		metric.WithExplicitBucketBoundaries(0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3))
	_, err2 = m.Float64ObservableGauge("regiond.global.usage.worst_ratio",
		metric.WithDescription("The largest such ratio since this process started."),
		metric.WithFloat64Callback(func(_ context.Context, obs metric.Float64Observer) error {
			for name, ratio := range o.all() {
				obs.Observe(ratio, metric.WithAttributes(limitLabels(name)...))
			}
			return nil
		}))
	return o, errors.Join(err, err2)
}

// window takes in one finished window of one partition.
func (o *overshoot) window(limit string, units, limitUnits int64) {
	ratio := float64(units) / float64(limitUnits)
	o.ratio.Record(context.Background(), ratio, metric.WithAttributes(limitLabels(limit)...))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.worst[limit] = max(o.worst[limit], ratio)
}

func (o *overshoot) all() map[string]float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	worst := make(map[string]float64, len(o.worst))
	for name, ratio := range o.worst {
		worst[name] = ratio
	}
	return worst
}

func limitLabels(name string) []attribute.KeyValue {
	policy, limit, _ := strings.Cut(name, ".")
	return []attribute.KeyValue{attribute.String("policy", policy), attribute.String("limit", limit)}
}
