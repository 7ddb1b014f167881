package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// telemetry is the metrics of one daemon, read by Prometheus. It is no global:
// two daemons in one process each have their own.
type telemetry struct {
	provider metric.MeterProvider
	stop     func(context.Context) error // of provider
	resource *resource.Resource          // who this is, for traces too
	registry *prometheus.Registry
	log      *slog.Logger
}

// maxSeries bounds what one instrument may export; more is added up under
// otel_metric_overflow. The topology bounds all of them: a hundred policies with a
// dozen global limits in sixteen regions come to 19,200 of regiond_global_usage_units.
const maxSeries = 20_000

func newTelemetry(o *Options, log *slog.Logger) (*telemetry, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t := &telemetry{registry: registry, resource: identity(o.Version, o.Region, o.Instance), log: log}
	if environment(os.Getenv).metricsOff() {
		t.provider, t.stop = noop.NewMeterProvider(), func(context.Context) error { return nil }
		return t, nil
	}
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("prometheus exporter: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(t.resource),
		sdkmetric.WithCardinalityLimit(maxSeries))
	t.provider, t.stop = provider, provider.Shutdown
	return t, nil
}

// identity describes this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
// override it and add to it.
func identity(release, region, instance string) *resource.Resource {
	own := resource.NewSchemaless(
		attribute.String("service.name", "regiond"), attribute.String("service.version", release),
		attribute.String("service.instance.id", instance), attribute.String("cloud.region", region))
	configured, err := resource.New(context.Background(), resource.WithFromEnv())
	if err != nil {
		return own // newTracing reports it
	}
	both, err := resource.Merge(own, resource.NewSchemaless(configured.Attributes()...))
	if err != nil {
		return own // impossible, since neither has a schema
	}
	return both
}

// meter is that of a package.
func (t *telemetry) meter(pkg string) metric.Meter {
	return t.provider.Meter("github.com/regiond/regiond/" + pkg)
}

// handler answers a scrape, with exemplars for scrapers that ask for OpenMetrics.
func (t *telemetry) handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorLog: slog.NewLogLogger(t.log.Handler(), slog.LevelWarn),
	})
}

func (t *telemetry) shutdown(ctx context.Context) error { return t.stop(ctx) }

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
