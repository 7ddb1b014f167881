package gossip

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the package's instruments. In Prometheus they are called
//
//	regiond_gossip_members{state}          processes known, this one among them
//	regiond_gossip_health                  0 well … 7 too slow to judge others
//	regiond_gossip_conflicts_total         mentions of a name with two addresses
//	regiond_gossip_refused_total{reason}   messages of strangers: label, key, region, metadata, message, full
//	regiond_gossip_rejoins_total{result}   calls to those who are not there: joined, failed, unresolved
//	regiond_config_drift_seconds           how long configurations have differed
type metrics struct {
	meter                       metric.Meter
	members, health             metric.Int64ObservableGauge
	drift                       metric.Float64ObservableGauge
	conflicts, refused, rejoins metric.Int64Counter
}

func newMetrics(meter metric.Meter) (*metrics, error) {
	m := &metrics{meter: meter}
	var errs [6]error
	m.members, errs[0] = meter.Int64ObservableGauge("regiond.gossip.members", metric.WithUnit("{process}"),
		metric.WithDescription("Processes known by gossip, this one among them, by state."))
	m.health, errs[1] = meter.Int64ObservableGauge("regiond.gossip.health", metric.WithUnit("{point}"),
		metric.WithDescription("How late this process is with its own probes: 0 is well, 7 the worst."))
	m.drift, errs[2] = meter.Float64ObservableGauge("regiond.config.drift", metric.WithUnit("s"),
		metric.WithDescription("How long the configurations of the processes that are alive have differed; 0 while they agree."))
	m.conflicts, errs[3] = meter.Int64Counter("regiond.gossip.conflicts", metric.WithUnit("{mention}"),
		metric.WithDescription("Mentions of a process under an address other than that of the living process of this name."))
	m.refused, errs[4] = meter.Int64Counter("regiond.gossip.refused", metric.WithUnit("{message}"),
		metric.WithDescription("Messages of strangers that were refused, by reason."))
	m.rejoins, errs[5] = meter.Int64Counter("regiond.gossip.rejoins", metric.WithUnit("{call}"),
		metric.WithDescription("Calls to processes that should be there and are not, by result."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	m.zero()
	return m, nil
}

// zero has the counters there from the start, for rate().
func (m *metrics) zero() {
	ctx := context.Background()
	m.conflicts.Add(ctx, 0)
	for _, reason := range []string{"label", "key", "region", "metadata", "message", "full"} {
		m.refused.Add(ctx, 0, metric.WithAttributes(attribute.String("reason", reason)))
	}
	for _, result := range []string{"joined", "failed", "unresolved"} {
		m.rejoins.Add(ctx, 0, metric.WithAttributes(attribute.String("result", result)))
	}
}

func (m *metrics) conflict() { m.conflicts.Add(context.Background(), 1) }

func (m *metrics) refusedFor(reason string) {
	m.refused.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason)))
}

func (m *metrics) rejoined(result string) {
	m.rejoins.Add(context.Background(), 1, metric.WithAttributes(attribute.String("result", result)))
}

// observe has the gauges show g until the returned function is called.
func (m *metrics) observe(g *Gossip) (unregister func(), err error) {
	registration, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		counts := map[State]int64{Alive: 0, Dead: 0, Left: 0}
		for _, member := range g.Members() {
			counts[member.State]++
		}
		for state, n := range counts {
			o.ObserveInt64(m.members, n, metric.WithAttributes(attribute.String("state", state.String())))
		}
		if ml := g.list.Load(); ml != nil {
			o.ObserveInt64(m.health, int64(ml.GetHealthScore()))
		}
		o.ObserveFloat64(m.drift, g.drift.seconds(time.Now()))
		return nil
	}, m.members, m.health, m.drift)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = registration.Unregister() // its only error is that it was called before
	}, nil
}
