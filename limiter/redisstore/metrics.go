package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// metrics are the instruments of a store. The counters are there from the start, for
// rate(). A process that keeps usage in memory has no Redis, and shows none of them.
type metrics struct {
	duration, batch            metric.Float64Histogram
	failures, unknown, reloads *instruments.Counter
	outages, losses            *instruments.Counter
	need                       atomic.Int64 // ns; 0: nothing was measured yet
}

// newMetrics creates them on a meter. available is read at each scrape.
func newMetrics(m metric.Meter, available func() bool) (*metrics, error) {
	i := instruments.On(m)
	s := &metrics{
		duration: i.Histogram("regiond.redis.duration", "s", "Time of one script call to Redis and back.",
			0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
		batch: i.Histogram("regiond.redis.batch_checks", "{check}", "Checks that travelled together in one script call.",
			1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
		failures: i.CounterBy("regiond.redis.failures", "{call}", "Script calls that Redis did not answer or refused, by reason.",
			"reason", quota.ReasonRedisTimeout.String(), quota.ReasonRedisDown.String(), quota.ReasonRedisRefused.String()),
		unknown: i.Counter("regiond.redis.ambiguous", "{check}",
			"Checks that were sent and whose reply was lost: whether they were charged is unknown."),
		reloads: i.Counter("regiond.redis.script_loads", "{load}", "Times that Redis had forgotten the decision script."),
		losses: i.Counter("regiond.redis.losses", "{loss}",
			"Times that Redis had lost writes that it had confirmed: flushed, restarted without its data, or failed over to a "+
				"replica that was behind."),
		outages: i.Counter("regiond.redis.outages", "{outage}", "Times that Redis was given up and fail modes began to answer."),
	}
	i.Gauge("regiond.redis.need", "s",
		"The fastest script call of the last second: what one check needs. If it is above --redis-budget, checks are turned "+
			"away as soon as another waits.",
		func(observe instruments.Observe) {
			if need := time.Duration(s.need.Load()); need > 0 {
				observe(need.Seconds())
			}
		})
	i.Gauge("regiond.redis.breaker_open", "", "1 while Redis is away and fail modes answer.",
		func(observe instruments.Observe) { observe(instruments.Truth(!available())) })
	return s, i.Err()
}

// called counts a script call. ctx is the call's, so that its span becomes an exemplar.
func (m *metrics) called(ctx context.Context, took time.Duration, calls int, fault *store.Error) {
	m.duration.Record(ctx, took.Seconds())
	m.batch.Record(ctx, float64(calls))
	if fault != nil {
		m.failures.Add(1, "reason", fault.Reason.String())
	}
}
