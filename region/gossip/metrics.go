package gossip

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the package's counters; the gauges read the Gossip. In Prometheus
// they are
//
//	regiond_gossip_members{state}          known processes, this one included
//	regiond_gossip_health                  0 healthy … 7 too slow to probe others
//	regiond_gossip_refused_total{reason}   label, key, size, bytes, streams, message, region, metadata, full
//	regiond_gossip_rejoins_total{result}   joined, failed, unresolved
//	regiond_config_drift_seconds           how long configurations have differed
type metrics struct {
	refused, rejoins metric.Int64Counter
}

func newMetrics(meter metric.Meter, g *Gossip) (*metrics, error) {
	var errs [5]error
	gauge := func(name, unit, description string, observe func(metric.Float64Observer)) error {
		_, err := meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description),
			metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error { observe(o); return nil }))
		return err
	}
	errs[0] = gauge("regiond.gossip.members", "{process}", "Processes known by gossip, this one included, by state.",
		func(o metric.Float64Observer) {
			counts := map[State]float64{Alive: 0, Dead: 0}
			for _, m := range g.Members() {
				counts[m.State]++
			}
			for state, n := range counts {
				o.Observe(n, metric.WithAttributes(attribute.String("state", string(state))))
			}
		})
	errs[1] = gauge("regiond.gossip.health", "{point}", "How late this process is with its own probes: 0 is healthy, 7 the worst.",
		func(o metric.Float64Observer) {
			if ml := g.list.Load(); ml != nil {
				o.Observe(float64(ml.GetHealthScore()))
			}
		})
	errs[2] = gauge("regiond.config.drift", "s",
		"How long the configurations of the processes that are alive have differed; 0 while they agree.",
		func(o metric.Float64Observer) {
			age := 0.0
			if since, _, ok := g.Drift(); ok {
				age = time.Since(since).Seconds()
			}
			o.Observe(age)
		})
	m := &metrics{}
	m.refused, errs[3] = meter.Int64Counter("regiond.gossip.refused", metric.WithUnit("{message}"),
		metric.WithDescription("Messages and streams that were refused, by reason."))
	m.rejoins, errs[4] = meter.Int64Counter("regiond.gossip.rejoins", metric.WithUnit("{call}"),
		metric.WithDescription("Calls to seeds and dead members, by result."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for _, reason := range []string{
		"label", "key", // of another deployment
		"size", "bytes", "streams", "message", // more than a deployment sends, or something else
		"region", "metadata", "full", // a member that does not belong here
	} {
		add(m.refused, "reason", reason, 0) // present from the start, for rate()
	}
	for _, result := range []string{"joined", "failed", "unresolved"} {
		add(m.rejoins, "result", result, 0)
	}
	return m, nil
}

func add(c metric.Int64Counter, key, value string, n int64) {
	c.Add(context.Background(), n, metric.WithAttributes(attribute.String(key, value)))
}

func (m *metrics) refusedFor(reason string) { add(m.refused, "reason", reason, 1) }

func (m *metrics) rejoined(result string) { add(m.rejoins, "result", result, 1) }
