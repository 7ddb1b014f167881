package ledger

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// metrics are the ledger's instruments; docs/observe.md describes them.
type metrics struct {
	turned, losses, lostUnits metric.Int64Counter
}

func newMetrics(m metric.Meter, l *Ledger) (*metrics, error) {
	gauge := func(name, unit, help string, read func() int64) error {
		_, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				o.Observe(read())
				return nil
			}))
		return err
	}
	ms := &metrics{}
	var errs [4]error
	ms.turned, errs[0] = m.Int64Counter("regiond.sync.turned_away", metric.WithUnit("{counter}"),
		metric.WithDescription("Usage counters that found no room and were not stored."))
	ms.losses, errs[1] = m.Int64Counter("regiond.sync.losses", metric.WithUnit("{partition}"),
		metric.WithDescription("Times that the store of our region was found to have lost what was admitted in a partition."))
	ms.lostUnits, errs[2] = m.Int64Counter("regiond.sync.lost_units", metric.WithUnit("{unit}"),
		metric.WithDescription("Units that were in the window when the store of our region lost them."))
	_, errs[3] = m.Float64ObservableGauge("regiond.sync.unsent_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest change of a usage counter that is not published; 0 when there is none."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(l.Unsent().Seconds())
			return nil
		}))
	err := errors.Join(append(errs[:],
		gauge("regiond.sync.partitions", "{partition}", "Partitions of global limits of which usage counters are held.", l.series.Load),
		gauge("regiond.sync.counters", "{counter}", "Usage counters that are held: regions, buckets and generations of the partitions.", l.counters.Load))...)
	if err != nil {
		return nil, err
	}
	for _, c := range []metric.Int64Counter{ms.turned, ms.losses, ms.lostUnits} {
		c.Add(context.Background(), 0) // there from the start, for rate()
	}
	return ms, nil
}

func (m *metrics) turnedAway() { m.turned.Add(context.Background(), 1) }

func (m *metrics) lost(units int64) {
	m.losses.Add(context.Background(), 1)
	m.lostUnits.Add(context.Background(), units)
}
