package redisstore

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// metrics are the instruments of a store. The counters are there from the start, for
// rate(). A process that keeps usage in memory has no Redis, and shows none of them.
type metrics struct {
	duration, batch            metric.Float64Histogram
	failures, unknown, reloads metric.Int64Counter
	outages, losses            metric.Int64Counter
	need                       metric.Float64Gauge
	reasons                    map[quota.Reason]metric.AddOption
}

// newMetrics creates them on a meter. available is read at each scrape.
func newMetrics(m metric.Meter, available func() bool) (*metrics, error) {
	var errs []error
	counter := func(name, unit, help string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	histogram := func(name, unit, help string, bounds ...float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(help),
			metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	need, err := m.Float64Gauge("regiond.redis.need", metric.WithUnit("s"),
		metric.WithDescription("The fastest script call of the last second: what one check needs. If it is above --redis-budget, checks are turned away as soon as another waits."))
	_, err2 := m.Int64ObservableGauge("regiond.redis.breaker_open", metric.WithDescription("1 while Redis is away and fail modes answer."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			if available() {
				o.Observe(0)
			} else {
				o.Observe(1)
			}
			return nil
		}))
	errs = append(errs, err, err2)
	s := &metrics{
		need: need,
		duration: histogram("regiond.redis.duration", "s", "Time of one script call to Redis and back.",
			0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
		batch: histogram("regiond.redis.batch_checks", "{check}", "Checks that travelled together in one script call.",
			1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
		failures: counter("regiond.redis.failures", "{call}", "Script calls that Redis did not answer or refused, by reason."),
		unknown:  counter("regiond.redis.ambiguous", "{check}", "Checks that were sent and whose reply was lost: whether they were charged is unknown."),
		reloads:  counter("regiond.redis.script_loads", "{load}", "Times that Redis had forgotten the decision script."),
		losses:   counter("regiond.redis.losses", "{loss}", "Times that Redis had lost writes that it had confirmed: flushed, restarted without its data, or failed over to a replica that was behind."),
		outages:  counter("regiond.redis.outages", "{outage}", "Times that Redis was given up and fail modes began to answer."),
		reasons:  make(map[quota.Reason]metric.AddOption),
	}
	ctx := context.Background()
	for _, c := range []metric.Int64Counter{s.unknown, s.reloads, s.outages, s.losses} {
		c.Add(ctx, 0)
	}
	for _, r := range []quota.Reason{quota.ReasonRedisTimeout, quota.ReasonRedisDown, quota.ReasonRedisRefused} {
		s.reasons[r] = metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", r.String())))
		s.failures.Add(ctx, 0, s.reasons[r])
	}
	return s, errors.Join(errs...)
}

// called counts a script call. ctx is the call's, so that its span becomes an exemplar.
func (m *metrics) called(ctx context.Context, took time.Duration, calls int, fault *store.Error) {
	m.duration.Record(ctx, took.Seconds())
	m.batch.Record(ctx, float64(calls))
	if fault != nil {
		m.failures.Add(ctx, 1, m.reasons[fault.Reason])
	}
}
