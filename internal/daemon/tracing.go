package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/region/view"
)

// tracing is the traces of one daemon; nil while nothing asks for any, and then
// there is no provider, no queue and no goroutine. As telemetry it is no global.
//
//	room ── tracer ──▶ provider ── followSampler ──▶ outlet ──▶ OTLP, console
type tracing struct {
	tracingSettings
	provider *sdktrace.TracerProvider
}

// newTracing reads the environment. A mistake in it leaves tracing off, with one
// line that names it: what watches a limiter must not keep it from starting.
func newTracing(res *resource.Resource, m metric.Meter, log *slog.Logger) (*tracing, error) {
	s, err := readTracing(os.Getenv)
	if err != nil {
		log.Warn("tracing is off, because its environment has mistakes", "error", err)
		return nil, nil
	}
	if s.exporter == exportNone {
		return nil, nil
	}
	exporter, err := newExporter(context.Background(), s.exporter)
	if err != nil {
		log.Warn("tracing is off, because its exporter cannot be made", "error", err)
		return nil, nil
	}
	out, err := newOutlet(exporter, s.queue, m, log)
	if err != nil {
		return nil, err
	}
	log.Info("tracing is on", "exporter", string(s.exporter), "sampler", s.sampler.Description(), "tenant", string(s.tenant))
	return &tracing{tracingSettings: s, provider: sdktrace.NewTracerProvider(
		sdktrace.WithResource(res), sdktrace.WithSampler(s.sampler), sdktrace.WithSpanProcessor(out))}, nil
}

// tracer is a room's; nil while tracing is off.
func (t *tracing) tracer(room string) trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer("github.com/regiond/regiond/" + room)
}

// door is how the doors trace; nil while tracing is off. secret keys the hash of
// tenant ids: who knows it can test guesses.
func (t *tracing) door(secret []byte) *httpapi.Tracing {
	if t == nil {
		return nil
	}
	d := &httpapi.Tracing{Tracer: t.tracer("httpapi"), Distrust: t.distrust}
	switch t.tenant {
	case tenantRaw:
		d.Tenant = func(tenant string) string { return tenant }
	case tenantHash:
		d.Tenant = func(tenant string) string { return tenantDigest(secret, tenant) }
	case tenantOff:
	}
	return d
}

// tenantDigest is the same in all regions, since they share the secret.
func tenantDigest(secret []byte, tenant string) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(tenant))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func (t *tracing) shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// changed makes the span of a change that nobody asked for: no time, one event.
func changed(t trace.Tracer, e view.Event) {
	if t == nil {
		return
	}
	attrs := trace.WithAttributes(
		attribute.String("regiond.kind", e.Kind.String()), attribute.String("regiond.peer", e.Region),
		attribute.String("regiond.from", e.From), attribute.String("regiond.to", e.To),
		attribute.String("regiond.reason", e.Reason.String()))
	_, span := t.Start(context.Background(), e.Kind.String()+" change", trace.WithSpanKind(trace.SpanKindInternal), attrs)
	span.AddEvent(e.Text, attrs)
	span.End()
}

// sampled finds the spans of requests that are sampled; nil while tracing is off.
func (t *tracing) sampled() func(context.Context) *trace.SpanContext {
	if t == nil {
		return nil
	}
	return sampledIn
}

// sampledIn is the span of a request that is sampled; nil of any other.
func sampledIn(ctx context.Context) *trace.SpanContext {
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsSampled() {
		return nil
	}
	sc := span.SpanContext()
	return &sc
}

// tracedLines adds to each line that is written for a sampled request where its
// trace is to be found.
type tracedLines struct{ slog.Handler }

// Handle implements slog.Handler.
func (h tracedLines) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h tracedLines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tracedLines{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h tracedLines) WithGroup(name string) slog.Handler {
	return tracedLines{h.Handler.WithGroup(name)}
}
