package ledger

import (
	"strings"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
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
