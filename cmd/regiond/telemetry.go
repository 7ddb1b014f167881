package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// telemetry is the metrics of one daemon, read by Prometheus. It is no global:
// two daemons in one process each have their own.
type telemetry struct {
	provider *sdkmetric.MeterProvider
	registry *prometheus.Registry
	log      *slog.Logger
}

func newTelemetry(region, instance string, log *slog.Logger) (*telemetry, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("prometheus exporter: %w", err)
	}
	release, _ := buildVersion()
	res := resource.NewSchemaless(
		attribute.String("service.name", "regiond"), attribute.String("service.version", release),
		attribute.String("service.instance.id", instance), attribute.String("cloud.region", region))
	return &telemetry{
		provider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(res)),
		registry: registry,
		log:      log,
	}, nil
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

func (t *telemetry) shutdown(ctx context.Context) error { return t.provider.Shutdown(ctx) }
