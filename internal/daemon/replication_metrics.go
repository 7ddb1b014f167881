package daemon

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/view"
	"github.com/regiond/regiond/sync/ledger"
)

// viewChanges counts changes of the view. In Prometheus:
//
//	regiond_mode_changes_total{from,to,reason}       of this process
//	regiond_region_changes_total{region,to}          of another region, as seen here
//	regiond_view_changes_total{kind}                 members, topology, process_paused
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
		metric.WithDescription("Other changes of the view: who is counted on, whether topologies differ, and pauses of this process."))
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
	default: // From and To may be any set of regions, so they are no labels
		c.others.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", e.Kind.String())))
	}
}

// orNone is the value of a label, since an empty one looks as if it were missing.
func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
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

// viewGauges show the view in force at each scrape. In Prometheus:
//
//	regiond_mode{mode}                        1 for the one in force
//	regiond_region_state{region,state}        1 for the state that another region is in
//	regiond_region_counted{region}            1 while its share is pooled with ours
//	regiond_region_acked_age_seconds{region}  of the newest of our messages that it acknowledged
//	regiond_peer_usage_missing_seconds{region}  for how long usage that it published is missing here
//	regiond_region_rtt_seconds{region}        by the exchange of heartbeats, of its slowest process
//	regiond_ceiling_ratio                     of each limit, before usage is subtracted
//	regiond_processes                         among which local ceilings are divided
type viewGauges struct {
	mode, state, counted, processes metric.Int64ObservableGauge
	acked, missing, rtt, ceiling    metric.Float64ObservableGauge
}

// watchView exports what r knows for as long as the meter's provider lives.
func watchView(m metric.Meter, r *replication) error {
	var g viewGauges
	var errs [8]error
	g.mode, errs[0] = m.Int64ObservableGauge("regiond.mode",
		metric.WithDescription("1 for the mode in which global limits with on_partition share are decided."))
	g.state, errs[1] = m.Int64ObservableGauge("regiond.region.state",
		metric.WithDescription("1 for the state in which this process sees another region."))
	g.counted, errs[2] = m.Int64ObservableGauge("regiond.region.counted",
		metric.WithDescription("1 while another region is counted on: its share of each limit is pooled with ours."))
	g.processes, errs[3] = m.Int64ObservableGauge("regiond.processes", metric.WithUnit("{process}"),
		metric.WithDescription("Processes of this region among which a limit is divided while Redis is away: the most seen lately."))
	g.acked, errs[4] = m.Float64ObservableGauge("regiond.region.acked_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the newest of our messages that another region has acknowledged."))
	g.rtt, errs[5] = m.Float64ObservableGauge("regiond.region.rtt", metric.WithUnit("s"),
		metric.WithDescription("Round trip to another region and back over the bus, of its slowest process."))
	g.ceiling, errs[6] = m.Float64ObservableGauge("regiond.ceiling", metric.WithUnit("1"),
		metric.WithDescription("How much of a global limit with on_partition share this region may use when nobody uses any: 1 while all regions are counted on."))
	g.missing, errs[7] = m.Float64ObservableGauge("regiond.peer.usage_missing", metric.WithUnit("s"),
		metric.WithDescription("For how long usage that another region has published is missing here: it was lost or refused. 0 while all is here."))
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g.observe(o, r)
		return nil
	}, g.mode, g.state, g.counted, g.processes, g.acked, g.missing, g.rtt, g.ceiling)
	return err
}

func (g *viewGauges) observe(o metric.Observer, r *replication) {
	v := r.ceilings.View()
	now, _ := v.Mode(quota.FailShare)
	for _, mode := range []quota.Mode{quota.ModeGlobal, quota.ModePartitioned, quota.ModeJoining} {
		o.ObserveInt64(g.mode, oneIf(mode == now), metric.WithAttributes(attribute.String("mode", mode.String())))
	}
	o.ObserveInt64(g.processes, r.manager.Processes())
	o.ObserveFloat64(g.ceiling, ceilingRatio(v))
	rtt := r.roundTrips()
	for i := range v.Peers() {
		p := &v.Peers()[i]
		if p.Region == r.self.Region {
			continue
		}
		name := attribute.String("region", p.Region)
		for s := view.StateNeverSeen; s < view.StateSelf; s++ {
			o.ObserveInt64(g.state, oneIf(p.State == s), metric.WithAttributes(name, attribute.String("state", s.String())))
		}
		o.ObserveInt64(g.counted, oneIf(p.InUse), metric.WithAttributes(name))
		if p.AckedMS != view.Never {
			o.ObserveFloat64(g.acked, float64(p.AckedMS)/1000, metric.WithAttributes(name))
		}
		missing := int64(0)
		for j := range p.Processes {
			missing = max(missing, p.Processes[j].MissingMS)
		}
		o.ObserveFloat64(g.missing, float64(missing)/1000, metric.WithAttributes(name))
		if d, ok := rtt[p.Region]; ok {
			o.ObserveFloat64(g.rtt, d.Seconds(), metric.WithAttributes(name))
		}
	}
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// ceilingRatio is our ceiling of a limit so large that shares have no remainders.
func ceilingRatio(v *view.View) float64 {
	const units = int64(1_000_000)
	unused := make([]int64, len(v.Regions()))
	ceiling, _ := v.Ceiling(units, quota.FailShare, unused, 0)
	return float64(ceiling) / float64(units)
}

// roundTrips is how long the bus takes there and back, by region; those without an
// exchange are missing.
func (r *replication) roundTrips() map[string]time.Duration {
	slowest := map[string]time.Duration{}
	peers := r.mesh.Peers()
	for i := range peers {
		if peers[i].RTT > 0 {
			slowest[peers[i].Region] = max(slowest[peers[i].Region], peers[i].RTT)
		}
	}
	return slowest
}

// watchUsage exports the usage of each global limit, over all partitions, as the ledger
// counted it last. Compared with what a region reports of itself it shows how far the
// estimate is behind. In Prometheus:
//
//	regiond_global_usage_units{policy,limit,region}
//	regiond_global_partitions{policy,limit}
func watchUsage(m metric.Meter, census func() []ledger.Usage) error {
	units, err := m.Int64ObservableGauge("regiond.global.usage_units", metric.WithUnit("{unit}"),
		metric.WithDescription("Units of a global limit that each region is believed to have used in the window, over all partitions."))
	partitions, err2 := m.Int64ObservableGauge("regiond.global.partitions", metric.WithUnit("{partition}"),
		metric.WithDescription("Partitions of a global limit in which any region has used something lately."))
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, u := range census() {
			labels := limitLabels(u.Limit)
			o.ObserveInt64(partitions, u.Partitions, metric.WithAttributes(labels...))
			for region, n := range u.Units {
				o.ObserveInt64(units, n, metric.WithAttributes(append(labels, attribute.String("region", region))...))
			}
		}
		return nil
	}, units, partitions)
	return err
}

// overshoot measures how well global limits hold: one window later each region knows
// what all of them admitted in it. Safe for concurrent use.
type overshoot struct {
	ratio metric.Float64Histogram

	mu     sync.Mutex
	worst  map[string]float64 // by "<policy>.<limit>"
	recent map[string]float64 // the same since it was taken last
}

func newOvershoot(m metric.Meter) (*overshoot, error) {
	o := &overshoot{worst: map[string]float64{}, recent: map[string]float64{}}
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

// window records one finished window of one partition.
func (o *overshoot) window(limit string, units, limitUnits int64) {
	ratio := float64(units) / float64(limitUnits)
	o.ratio.Record(context.Background(), ratio, metric.WithAttributes(limitLabels(limit)...))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.worst[limit] = max(o.worst[limit], ratio)
	o.recent[limit] = max(o.recent[limit], ratio)
}

// take returns the largest ratio of each limit since it was called last. The page alone calls it.
func (o *overshoot) take() map[string]float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	recent := o.recent
	o.recent = map[string]float64{}
	return recent
}

func (o *overshoot) all() map[string]float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.worst)
}

// excessLogEvery is how often it is logged that a region claims too much.
const excessLogEvery = 10 * time.Second

// excess counts and logs what a region claims beyond what any region publishes. Safe for
// concurrent use.
type excess struct {
	units  metric.Int64Counter
	log    *slog.Logger
	now    func() time.Duration
	logged atomic.Int64 // the time of the last line, by now; 0: none yet
}

func newExcess(m metric.Meter, regions []string, log *slog.Logger, now func() time.Duration) (*excess, error) {
	units, err := m.Int64Counter("regiond.peer.excess_units", metric.WithUnit("{unit}"),
		metric.WithDescription("Units that a region claims to have used of a limit in one bucket beyond what any region publishes; they are not counted."))
	if err != nil {
		return nil, err
	}
	e := &excess{units: units, log: log, now: now}
	e.watch(regions)
	return e, nil
}

// watch makes the series of regions, so that an alert sees the first event.
func (e *excess) watch(regions []string) {
	for _, region := range regions {
		e.add(region, 0)
	}
}

func (e *excess) add(region string, units int64) {
	e.units.Add(context.Background(), units, metric.WithAttributes(attribute.String("region", region)))
}

func (e *excess) claimed(region, limit string, units int64) {
	e.add(region, units)
	now, last := max(1, e.now().Microseconds()), e.logged.Load()
	if last != 0 && now-last < excessLogEvery.Microseconds() || !e.logged.CompareAndSwap(last, now) {
		return
	}
	e.log.Warn("a region claims to have used more than it may admit; the rest is not counted. Unless a limit was lowered and it has not reloaded yet, a process that is not ours speaks for it: replace the shared key",
		"region", region, "limit", limit, "units", units)
}

func limitLabels(name string) []attribute.KeyValue {
	policy, limit, _ := strings.Cut(name, ".")
	return []attribute.KeyValue{attribute.String("policy", policy), attribute.String("limit", limit)}
}
