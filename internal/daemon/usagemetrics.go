package daemon

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/sync/ledger"
)

// watchUsage exports what each global limit is used, over all partitions, as the
// ledger counted them when it swept last. Read beside the same figure of the region
// itself it is how far the estimate is behind. In Prometheus:
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
