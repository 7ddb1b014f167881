package daemon

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
)

// countChanges returns what counts changes of the view. An empty label looks as if it were missing.
func countChanges(i *instruments.Maker) func(e view.Event) {
	modes := i.CounterBy("regiond.mode.changes", "{change}", "Changes of the mode of global limits, with the reason of the new one.", "from")
	regions := i.CounterBy("regiond.region.changes", "{change}", "Times that another region came into a state.", "region")
	others := i.CounterBy("regiond.view.changes", "{change}",
		"Other changes of the view: which regions are reachable, whether topologies differ, and pauses of this process.",
		"kind", view.MembersChanged.String(), view.TopologyChanged.String(), view.ProcessPaused.String())
	return func(e view.Event) {
		switch e.Kind {
		case view.ModeChanged:
			modes.Add(1, "from", cmp.Or(e.From, "none"), "to", e.To, "reason", cmp.Or(e.Reason.String(), "none"))
		case view.RegionChanged:
			regions.Add(1, "region", e.Region, "to", e.To)
		default: // From and To may be any set of regions, so they are no labels
			others.Add(1, "kind", e.Kind.String())
		}
	}
}

// traceChange makes the span of a change of the view: no time, one event.
func traceChange(t trace.Tracer, e view.Event) {
	if t == nil {
		return
	}
	attrs := trace.WithAttributes(
		attribute.String("regiond.kind", e.Kind.String()), attribute.String("regiond.peer", e.Region),
		attribute.String("regiond.from", e.From), attribute.String("regiond.to", e.To),
		attribute.String("regiond.reason", e.Reason.String()))
	_, span := t.Start(context.Background(), e.Kind.String()+" change", trace.WithSpanKind(trace.SpanKindInternal), attrs)
	span.AddEvent(e.Text, attrs)
	span.End()
}

// watchView shows the view in force at each scrape.
func (r *replication) watchView(i *instruments.Maker) {
	i.Gauge("regiond.mode", "",
		"1 for the mode in which global limits with on_partition share are decided.", func(observe instruments.Observe) {
			now, _ := r.ceilings.View().Mode(quota.FailShare)
			for _, mode := range []quota.Mode{quota.ModeGlobal, quota.ModePartitioned, quota.ModeJoining} {
				observe(instruments.Truth(mode == now), "mode", mode.String())
			}
		})
	i.Gauge("regiond.processes", "{process}",
		"Processes of this region among which a limit is divided while Redis is away: the most seen lately.",
		func(observe instruments.Observe) { observe(float64(r.manager.Processes())) })
	i.Gauge("regiond.ceiling", "1",
		"How much of a global limit with on_partition share this region may use when nobody uses any: 1 while all regions are "+
			"counted on.",
		func(observe instruments.Observe) {
			v := r.ceilings.View()
			const units = int64(1_000_000) // so many that shares have no remainders
			ceiling, _ := v.Ceiling(units, quota.FailShare, make([]int64, len(v.Regions)), 0)
			observe(float64(ceiling) / float64(units))
		})
	others := func(name, unit, help string, show func(p *members.RegionRow, observe instruments.Observe)) {
		i.Gauge(name, unit, help, func(observe instruments.Observe) {
			peers := r.ceilings.View().Peers
			for i := range peers {
				if p := &peers[i]; p.Region != r.self.Region {
					show(p, observe)
				}
			}
		})
	}
	others("regiond.region.state", "",
		"1 for the state in which this process sees another region.", func(p *members.RegionRow, observe instruments.Observe) {
			for s := members.StateNeverSeen; s < members.StateSelf; s++ {
				observe(instruments.Truth(p.State == s), "region", p.Region, "state", s.String())
			}
		})
	others("regiond.region.counted", "", "1 while another region is counted on: its share of each limit is pooled with ours.",
		func(p *members.RegionRow, observe instruments.Observe) {
			observe(instruments.Truth(p.InUse), "region", p.Region)
		})
	others("regiond.region.acked_age", "s", "Age of the newest of our messages that another region has acknowledged.",
		func(p *members.RegionRow, observe instruments.Observe) {
			if p.AckedMS != members.Never {
				observe(float64(p.AckedMS)/1000, "region", p.Region)
			}
		})
	others("regiond.peer.usage_missing", "s",
		"For how long usage that another region has published is missing here: it was lost or refused. 0 while all is here.",
		func(p *members.RegionRow, observe instruments.Observe) {
			missing := int64(0)
			for j := range p.Processes {
				missing = max(missing, p.Processes[j].MissingMS)
			}
			observe(float64(missing)/1000, "region", p.Region)
		})
	i.Gauge("regiond.region.rtt", "s",
		"Round trip to another region and back over the bus, of its slowest process.", func(observe instruments.Observe) {
			for region, rtt := range r.roundTrips() {
				if region != r.self.Region {
					observe(rtt.Seconds(), "region", region)
				}
			}
		})
}

// roundTrips is how long the bus takes there and back, by region; those without an
// exchange are missing.
func (r *replication) roundTrips() map[string]time.Duration {
	slowest := map[string]time.Duration{}
	for _, p := range r.members.Others() {
		if p.RTT > 0 {
			slowest[p.Region] = max(slowest[p.Region], p.RTT)
		}
	}
	return slowest
}
