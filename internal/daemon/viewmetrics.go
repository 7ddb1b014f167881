package daemon

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/view"
)

// viewChanges count what a view.Manager reports. In Prometheus they are called
//
//	regiond_mode_changes_total{from,to,reason}       of this process
//	regiond_region_changes_total{region,to}          of another region, as seen here
//	regiond_view_changes_total{kind}                 members, topology, frozen
type viewChanges struct {
	modes, regions, others metric.Int64Counter
}

func newViewChanges(m metric.Meter) (viewChanges, error) {
	var c viewChanges
	var errs [3]error
	c.modes, errs[0] = m.Int64Counter("regiond.mode.changes", metric.WithUnit("{change}"),
		metric.WithDescription("Changes of the mode of global limits, with the reason of the new one."))
	c.regions, errs[1] = m.Int64Counter("regiond.region.changes", metric.WithUnit("{change}"),
		metric.WithDescription("Times that another region came into a state."))
	c.others, errs[2] = m.Int64Counter("regiond.view.changes", metric.WithUnit("{change}"),
		metric.WithDescription("Other changes of the view: who is counted on, whether topologies differ, and standstills of this process."))
	if err := errors.Join(errs[:]...); err != nil {
		return c, err
	}
	for _, kind := range []view.EventKind{view.MembersChanged, view.TopologyChanged, view.ProcessPaused} {
		c.others.Add(context.Background(), 0, metric.WithAttributes(attribute.String("kind", kind.String())))
	}
	return c, nil
}

func (c *viewChanges) count(e view.Event) {
	ctx := context.Background()
	switch e.Kind {
	case view.ModeChanged:
		c.modes.Add(ctx, 1, metric.WithAttributes(
			attribute.String("from", orNone(e.From)), attribute.String("to", e.To), attribute.String("reason", orNone(e.Reason.String()))))
	case view.RegionChanged:
		c.regions.Add(ctx, 1, metric.WithAttributes(attribute.String("region", e.Region), attribute.String("to", e.To)))
	default: // From and To may be any set of regions, and are no labels
		c.others.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", e.Kind.String())))
	}
}

// orNone is a word for the label of what has none: an empty one looks missing.
func orNone(word string) string {
	if word == "" {
		return "none"
	}
	return word
}

// viewGauges show the view in force at each scrape. In Prometheus they are called
//
//	regiond_mode{mode}                        1 for the one that is
//	regiond_region_state{region,state}        1 for the one that each other region is in
//	regiond_region_counted{region}            1 while its part is pooled with ours
//	regiond_region_acked_age_seconds{region}  of the newest of our messages that it acknowledged
//	regiond_region_rtt_seconds{region}        by the exchange of beats, of its slowest process
//	regiond_ceiling_ratio                     of each limit, before anybody's use is taken off
//	regiond_processes                         among whom local ceilings are divided
type viewGauges struct {
	mode, state, counted, processes metric.Int64ObservableGauge
	acked, rtt, ceiling             metric.Float64ObservableGauge
}

// watchView has the gauges show what n sees, as long as the meter's provider lives.
func watchView(m metric.Meter, n *neighbours) error {
	var g viewGauges
	var errs [7]error
	g.mode, errs[0] = m.Int64ObservableGauge("regiond.mode",
		metric.WithDescription("1 for the mode in which global limits with on_partition share are decided."))
	g.state, errs[1] = m.Int64ObservableGauge("regiond.region.state",
		metric.WithDescription("1 for the state in which this process sees another region."))
	g.counted, errs[2] = m.Int64ObservableGauge("regiond.region.counted",
		metric.WithDescription("1 while another region is counted on: its part of each limit is pooled with ours."))
	g.processes, errs[3] = m.Int64ObservableGauge("regiond.processes", metric.WithUnit("{process}"),
		metric.WithDescription("Processes of this region among which a limit is divided while Redis is away: the most seen lately."))
	g.acked, errs[4] = m.Float64ObservableGauge("regiond.region.acked_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the newest of our messages that another region has acknowledged."))
	g.rtt, errs[5] = m.Float64ObservableGauge("regiond.region.rtt", metric.WithUnit("s"),
		metric.WithDescription("Round trip to another region and back over the bus, of its slowest process."))
	g.ceiling, errs[6] = m.Float64ObservableGauge("regiond.ceiling", metric.WithUnit("1"),
		metric.WithDescription("How much of a global limit with on_partition share this region may use when nobody uses any: 1 while all regions are counted on."))
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g.show(o, n)
		return nil
	}, g.mode, g.state, g.counted, g.processes, g.acked, g.rtt, g.ceiling)
	return err
}

func (g *viewGauges) show(o metric.Observer, n *neighbours) {
	v := n.ceilings.View()
	now, _ := v.Mode(quota.FailShare)
	for _, mode := range []quota.Mode{quota.ModeGlobal, quota.ModePartitioned, quota.ModeJoining} {
		o.ObserveInt64(g.mode, one(mode == now), metric.WithAttributes(attribute.String("mode", mode.String())))
	}
	o.ObserveInt64(g.processes, n.manager.Processes())
	o.ObserveFloat64(g.ceiling, ceilingRatio(v))
	rtt := n.roundTrips()
	for i := range v.Peers() {
		p := &v.Peers()[i]
		if p.Region == n.self.Region {
			continue
		}
		name := attribute.String("region", p.Region)
		for s := view.StateNeverSeen; s < view.StateSelf; s++ {
			o.ObserveInt64(g.state, one(p.State == s), metric.WithAttributes(name, attribute.String("state", s.String())))
		}
		o.ObserveInt64(g.counted, one(p.InUse), metric.WithAttributes(name))
		if p.AckedMS != view.Never {
			o.ObserveFloat64(g.acked, float64(p.AckedMS)/1000, metric.WithAttributes(name))
		}
		if d, ok := rtt[p.Region]; ok {
			o.ObserveFloat64(g.rtt, d.Seconds(), metric.WithAttributes(name))
		}
	}
}

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// ceilingRatio is our ceiling of a limit so large that parts have no remainders.
func ceilingRatio(v *view.View) float64 {
	const units = int64(1_000_000)
	unused := make([]int64, len(v.Regions()))
	ceiling, _ := v.Ceiling(units, quota.FailShare, unused, 0)
	return float64(ceiling) / float64(units)
}

// roundTrips is how long the bus takes there and back, by region; those without an
// exchange are missing.
func (n *neighbours) roundTrips() map[string]time.Duration {
	slowest := map[string]time.Duration{}
	peers := n.mesh.Peers()
	for i := range peers {
		if peers[i].RTT > 0 {
			slowest[peers[i].Region] = max(slowest[peers[i].Region], peers[i].RTT)
		}
	}
	return slowest
}
