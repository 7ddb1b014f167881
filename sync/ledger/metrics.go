package ledger

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
)

// metrics are the ledger's instruments; docs/observe.md describes them.
type metrics struct {
	turned, losses, lostUnits metric.Int64Counter
}

func newMetrics(meter metric.Meter, l *Ledger) (*metrics, error) {
	i, none := instruments.On(meter), instruments.Zero()
	ms := &metrics{
		turned: i.Counter("regiond.sync.turned_away", "{counter}", "Usage counters that found no room and were not stored.", none),
		losses: i.Counter("regiond.sync.losses", "{partition}",
			"Times that the store of our region was found to have lost what was admitted in a partition.", none),
		lostUnits: i.Counter("regiond.sync.lost_units", "{unit}", "Units that were in the window when the store of our region lost them.", none),
	}
	i.Gauge("regiond.sync.unsent_age", "s", "Age of the oldest change of a usage counter that is not published; 0 when there is none.",
		func(o metric.Float64Observer) { o.Observe(l.Unsent().Seconds()) })
	i.Gauge("regiond.sync.partitions", "{partition}", "Partitions of global limits of which usage counters are held.",
		func(o metric.Float64Observer) { o.Observe(float64(l.series.Load())) })
	i.Gauge("regiond.sync.counters", "{counter}", "Usage counters that are held: regions, buckets and generations of the partitions.",
		func(o metric.Float64Observer) { o.Observe(float64(l.counters.Load())) })
	return ms, i.Err()
}

func (m *metrics) turnedAway() { m.turned.Add(context.Background(), 1) }

func (m *metrics) lost(units int64) {
	m.losses.Add(context.Background(), 1)
	m.lostUnits.Add(context.Background(), units)
}
