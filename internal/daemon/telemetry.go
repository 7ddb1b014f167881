package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"

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

// identity is who this process is; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES may
// say otherwise, and more.
func identity(release, region, instance string) *resource.Resource {
	own := resource.NewSchemaless(
		attribute.String("service.name", "regiond"), attribute.String("service.version", release),
		attribute.String("service.instance.id", instance), attribute.String("cloud.region", region))
	told, err := resource.New(context.Background(), resource.WithFromEnv())
	if err != nil {
		return own // tracing says what is wrong with it
	}
	both, err := resource.Merge(own, resource.NewSchemaless(told.Attributes()...))
	if err != nil {
		return own // cannot be: neither has a schema
	}
	return both
}

func (t *telemetry) meter(room string) metric.Meter {
	return t.provider.Meter("github.com/regiond/regiond/" + room)
}

// handler answers a scrape, with exemplars for scrapers that ask for OpenMetrics.
func (t *telemetry) handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorLog: slog.NewLogLogger(t.log.Handler(), slog.LevelWarn),
	})
}

func (t *telemetry) shutdown(ctx context.Context) error { return t.stop(ctx) }
