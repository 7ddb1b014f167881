package ledger

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/base/loglimit"
)

// metrics are the ledger's instruments; docs/observe.md describes them.
type metrics struct {
	turned, losses, lostUnits *instruments.Counter
}

func newMetrics(meter metric.Meter, l *Ledger) (*metrics, error) {
	i := instruments.On(meter)
	ms := &metrics{
		turned: i.Counter("regiond.sync.turned_away", "{counter}", "Usage counters that found no room and were not stored."),
		losses: i.Counter("regiond.sync.losses", "{partition}",
			"Times that the store of our region was found to have lost what was admitted in a partition."),
		lostUnits: i.Counter("regiond.sync.lost_units", "{unit}",
			"Units that were in the window when the store of our region lost them."),
	}
	i.Gauge("regiond.sync.unsent_age", "s", "Age of the oldest change of a usage counter that is not published; 0 when there is none.",
		func(observe instruments.Observe) { observe(l.Unsent().Seconds()) })
	i.Gauge("regiond.sync.partitions", "{partition}", "Partitions of global limits of which usage counters are held.",
		func(observe instruments.Observe) { observe(float64(l.series.Load())) })
	i.Gauge("regiond.sync.counters", "{counter}", "Usage counters that are held: regions, buckets and generations of the partitions.",
		func(observe instruments.Observe) { observe(float64(l.counters.Load())) })
	i.Gauge("regiond.global.usage_units", "{unit}",
		"Units of a global limit that each region is believed to have used in the window, over all partitions.", func(observe instruments.Observe) {
			for _, u := range l.UsageStats() {
				policy, limit, _ := strings.Cut(u.Limit, ".")
				for region, n := range u.Units {
					observe(float64(n), "policy", policy, "limit", limit, "region", region)
				}
			}
		})
	i.Gauge("regiond.global.partitions", "{partition}",
		"Partitions of a global limit in which any region has used something lately.", func(observe instruments.Observe) {
			for _, u := range l.UsageStats() {
				policy, limit, _ := strings.Cut(u.Limit, ".")
				observe(float64(u.Partitions), "policy", policy, "limit", limit)
			}
		})
	return ms, i.Err()
}

// Overshoot measures how well global limits hold: one window later each region knows
// what all of them admitted in it. Safe for concurrent use.
type Overshoot struct {
	ratio metric.Float64Histogram

	mu     sync.Mutex
	worst  map[string]float64 // by "<policy>.<limit>"
	recent map[string]float64 // the same since it was taken last
}

// NewOvershoot returns an Overshoot, whose Window is for Options.
func NewOvershoot(i *instruments.Maker) *Overshoot {
	o := &Overshoot{worst: map[string]float64{}, recent: map[string]float64{}}
	o.ratio = i.Histogram("regiond.global.usage.ratio", "",
		"What all regions admitted in an aligned window of a global limit, divided by the limit, per partition.",
		0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3)
	i.Gauge("regiond.global.usage.worst_ratio", "",
		"The largest such ratio since this process started.", func(observe instruments.Observe) {
			for name, ratio := range o.Worst() {
				policy, limit, _ := strings.Cut(name, ".")
				observe(ratio, "policy", policy, "limit", limit)
			}
		})
	return o
}

// Window records one finished window of one partition of a limit.
func (o *Overshoot) Window(name string, units, limitUnits int64) {
	ratio := float64(units) / float64(limitUnits)
	policy, limit, _ := strings.Cut(name, ".")
	o.ratio.Record(context.Background(), ratio, instruments.Labels("policy", policy, "limit", limit))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.worst[name] = max(o.worst[name], ratio)
	o.recent[name] = max(o.recent[name], ratio)
}

// Take returns the largest ratio of each limit since it was called last. The page alone calls it.
func (o *Overshoot) Take() map[string]float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	recent := o.recent
	o.recent = map[string]float64{}
	return recent
}

// Worst returns the largest ratio of each limit.
func (o *Overshoot) Worst() map[string]float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.worst)
}

// Excess counts and logs what a region claims beyond what any region publishes. Safe for
// concurrent use.
type Excess struct {
	units *instruments.Counter
	log   *slog.Logger
	lines *loglimit.Rate
}

// NewExcess returns an Excess, whose Claimed is for Options.
func NewExcess(i *instruments.Maker, regions []string, log *slog.Logger) *Excess {
	return &Excess{log: log, lines: loglimit.NewRate(1, 10*time.Second), units: i.CounterBy("regiond.peer.excess_units", "{unit}",
		"Units that a region claims to have used of a limit in one bucket beyond what any region publishes; they are not "+
			"counted.", "region", regions...)}
}

// Watch makes the series of regions, so that an alert sees the first event.
func (e *Excess) Watch(regions []string) {
	for _, region := range regions {
		e.units.Add(0, "region", region)
	}
}

// Claimed records what a region claims too much.
func (e *Excess) Claimed(region, limit string, units int64) {
	e.units.Add(units, "region", region)
	e.lines.Warn(e.log, time.Now(), "", "a region claims to have used more than it may admit; the rest is not counted. "+
		"Unless a limit was lowered and it has not reloaded yet, a process that is not ours speaks for it: replace the shared key",
		"region", region, "limit", limit, "units", units)
}
