package daemon

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// newExporter makes the exporter that the environment names. It dials nobody yet.
// Where to, with which headers, certificates and timeout, it reads from the
// OTEL_EXPORTER_OTLP_* variables itself.
func newExporter(ctx context.Context, name exporterName) (sdktrace.SpanExporter, error) {
	var e sdktrace.SpanExporter
	var err error
	switch name {
	case exportHTTP:
		e, err = otlptracehttp.New(ctx)
	case exportGRPC:
		e, err = otlptracegrpc.New(ctx)
	default:
		e, err = stdouttrace.New()
	}
	if err != nil {
		return nil, fmt.Errorf("trace exporter: %w", err)
	}
	return e, nil
}
