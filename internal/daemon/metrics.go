package daemon

import (
	"context"
	"errors"
	"runtime"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// watchProcess exports what this process is and whether traffic should come here. In
// Prometheus:
//
//	regiond_build_info{version,commit,go_version}  1
//	regiond_ready                                  1 while /readyz is 200
func watchProcess(m metric.Meter, release, commit string, ready func() (bool, []string)) error {
	labels := metric.WithAttributes(
		attribute.String("version", release), attribute.String("commit", commit), attribute.String("go_version", runtime.Version()))
	_, err := m.Int64ObservableGauge("regiond.build.info", metric.WithDescription("1, labelled with what this program was built from."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(1, labels)
			return nil
		}))
	_, err2 := m.Int64ObservableGauge("regiond.ready", metric.WithDescription("1 while /readyz reports that traffic should come here."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			ok, _ := ready()
			o.Observe(oneIf(ok))
			return nil
		}))
	return errors.Join(err, err2)
}
