// Package telemetry is what a daemon shows of itself: metrics for Prometheus, traces for a collector, its log, and the
// log of denials. It knows what a decision is, and nothing of those who make it.
package telemetry

import (
	"context"
	"errors"
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
	"go.opentelemetry.io/otel/trace"
)

// scope is the prefix of the names of meters and tracers.
const scope = "github.com/regiond/regiond/"

// Telemetry is the metrics and the traces of one daemon. It is no global: two daemons in one
// process each have their own.
type Telemetry struct {
	metrics  metric.MeterProvider
	stop     func(context.Context) error // of metrics
	registry *prometheus.Registry
	log      *slog.Logger
	tracing  *tracing // nil while off
}

// maxSeries bounds what one instrument may export; more is added up under
// otel_metric_overflow. The topology bounds all of them: a hundred policies with a
// dozen global limits in sixteen regions come to 19,200 of regiond_global_usage_units.
const maxSeries = 20_000

// New reads the environment. Metrics and traces say that they are of this process.
func New(version, region, instance string, log *slog.Logger) (*Telemetry, error) {
	t := &Telemetry{registry: prometheus.NewRegistry(), stop: func(context.Context) error { return nil }, log: log}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	res := identity(version, region, instance)
	if environment(os.Getenv).metricsOff() {
		t.metrics = noop.NewMeterProvider()
	} else {
		exporter, err := otelprom.New(otelprom.WithRegisterer(t.registry), otelprom.WithoutScopeInfo())
		if err != nil {
			return nil, fmt.Errorf("prometheus exporter: %w", err)
		}
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(res),
			sdkmetric.WithCardinalityLimit(maxSeries))
		t.metrics, t.stop = provider, provider.Shutdown
	}
	var err error
	if t.tracing, err = newTracing(res, t.Meter("regiond"), log.With("component", "tracing")); err != nil {
		return nil, errors.Join(err, t.stop(context.Background()))
	}
	if t.tracing != nil {
		t.log = slog.New(traceHandler{log.Handler()})
	}
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

// Meter is that of a package.
func (t *Telemetry) Meter(pkg string) metric.Meter { return t.metrics.Meter(scope + pkg) }

// Log is the daemon's log, of which lines about sampled requests say where their traces are.
func (t *Telemetry) Log() *slog.Logger { return t.log }

// Registry has all metrics.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// Handler answers a scrape, with exemplars for scrapers that ask for OpenMetrics.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorLog: slog.NewLogLogger(t.log.Handler(), slog.LevelWarn),
	})
}

// Tracer is that of a package; nil while tracing is off, which costs a comparison where
// OpenTelemetry's no-op tracer allocates a context for each span.
func (t *Telemetry) Tracer(pkg string) trace.Tracer {
	if t.tracing == nil {
		return nil
	}
	return t.tracing.provider.Tracer(scope + pkg)
}

// LinksParents reports whether spans of checks link to their callers' and do not continue them.
func (t *Telemetry) LinksParents() bool { return t.tracing != nil && t.tracing.linkParents }

// Tenant is what spans show of a tenant; nil for nothing. secret keys the hash.
func (t *Telemetry) Tenant(secret []byte) func(tenant string) string {
	if t.tracing == nil {
		return nil
	}
	return tenantText(t.tracing.tenant, secret)
}

// Sampled finds the spans of requests that are sampled; nil while tracing is off.
func (t *Telemetry) Sampled() func(context.Context) *trace.SpanContext {
	if t.tracing == nil {
		return nil
	}
	return func(ctx context.Context) *trace.SpanContext {
		span := trace.SpanContextFromContext(ctx)
		if !span.IsSampled() {
			return nil
		}
		return &span
	}
}

// Shutdown sends what is left.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t.tracing == nil {
		return t.stop(ctx)
	}
	return errors.Join(t.tracing.provider.Shutdown(ctx), t.stop(ctx))
}
