package telemetry

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// tracing is the traces of one daemon; nil while nothing asks for any, and then there
// is no provider, no queue and no goroutine.
//
//	environment ─▶ traceSettings ─▶ provider ── linkSampler ──▶ boundedExporter ──▶ OTLP, console
//	                                   └─ Telemetry.Tracer: nil while off
type tracing struct {
	traceSettings
	provider *sdktrace.TracerProvider
}

// newTracing reads the environment. A mistake in it turns tracing off and is logged:
// such variables are often set for a whole cluster, and must not stop a limiter.
func newTracing(res *resource.Resource, m metric.Meter, log *slog.Logger) (*tracing, error) {
	s, err := readTracing(os.Getenv)
	if err != nil {
		log.Warn("tracing is off, because its environment has mistakes", "error", err)
		return nil, nil
	}
	if s.exporter == "none" {
		return nil, nil
	}
	exporter, err := s.newExporter(context.Background())
	if err != nil {
		log.Warn("tracing is off, because its exporter cannot be created", "error", err)
		return nil, nil
	}
	out, err := newBoundedExporter(exporter, m, log)
	if err != nil {
		return nil, err
	}
	log.Info("tracing is on", "exporter", s.exporter, "sampler", s.sampler.Description(), "tenant", s.tenant)
	return &tracing{traceSettings: s, provider: sdktrace.NewTracerProvider(
		sdktrace.WithResource(res), sdktrace.WithSampler(s.sampler), sdktrace.WithSpanProcessor(out))}, nil
}

// tenantText is what is shown of a tenant: nil for off. secret keys the hash.
func tenantText(shown string, secret []byte) func(tenant string) string {
	switch shown {
	case tenantRaw:
		return func(tenant string) string { return tenant }
	case tenantHash:
		return func(tenant string) string {
			h := hmac.New(sha256.New, secret)
			h.Write([]byte(tenant))
			return hex.EncodeToString(h.Sum(nil)[:8])
		}
	}
	return nil
}

// What spans and the denial log show of a tenant's id.
const (
	tenantOff  = "off"
	tenantHash = "hash"
	tenantRaw  = "raw"
)

// traceSettings are the variables of the environment that are ours to read. The
// exporters read OTEL_EXPORTER_OTLP_* themselves, and the SDK OTEL_BSP_*.
type traceSettings struct {
	exporter    string // none (tracing is off), console, http/protobuf or grpc
	sampler     sdktrace.Sampler
	linkParents bool // callers' contexts are linked to and not continued
	tenant      string
}

func (s *traceSettings) newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	switch s.exporter {
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	}
	return stdouttrace.New()
}

// environment looks a variable up; "" for none.
type environment func(name string) string

// metricsOff reports whether no metrics are wanted.
func (e environment) metricsOff() bool {
	return e.disabled() || e.lower("OTEL_METRICS_EXPORTER") == "none"
}

func (e environment) disabled() bool { return e.lower("OTEL_SDK_DISABLED") == "true" }

func (e environment) lower(name string) string { return strings.ToLower(strings.TrimSpace(e(name))) }

// choice is the value of a variable, or the first of values when it is not set.
func (e environment) choice(name string, values ...string) (string, error) {
	got := e.lower(name)
	if got == "" {
		return values[0], nil
	}
	if !slices.Contains(values, got) {
		return "", fmt.Errorf("%s=%q: it is one of %s", name, got, strings.Join(values, ", "))
	}
	return got, nil
}

// readTracing reads the environment. Its error names every mistake. Nothing is sent
// anywhere by default: the standard's default is a collector on localhost, and
// complaints about its absence.
func readTracing(e environment) (traceSettings, error) {
	const endpoint, protocol = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	const allEndpoint, allProtocol = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
	exporters := []string{"otlp", "console", "none"}
	if e(endpoint) == "" && e(allEndpoint) == "" {
		exporters = []string{"none", "otlp", "console"}
	}
	var s traceSettings
	var errs [7]error
	if s.exporter, errs[0] = e.choice("OTEL_TRACES_EXPORTER", exporters...); s.exporter == "none" || e.disabled() {
		s.exporter = "none"
		return s, nil
	}
	if s.exporter == "otlp" {
		name := protocol
		if e(protocol) == "" {
			name = allProtocol
		}
		s.exporter, errs[1] = e.choice(name, "http/protobuf", "grpc")
	}
	for i, name := range []string{endpoint, allEndpoint} { // the exporters would replace a bad one by localhost
		if u, err := url.Parse(e(name)); e(name) != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			errs[2+i] = fmt.Errorf("%s=%q: it is a URL such as http://collector:4318", name, e(name))
		}
	}
	s.sampler, errs[4] = e.sampler()
	parent, err := e.choice("REGIOND_TRACE_PARENT", "continue", "link")
	s.linkParents, errs[5] = parent == "link", err
	s.tenant, errs[6] = e.choice("REGIOND_TRACE_TENANT", tenantOff, tenantHash, tenantRaw)
	return s, errors.Join(errs[:]...)
}

// sampler reads what the SDK reads, too, but keeps to itself.
func (e environment) sampler() (sdktrace.Sampler, error) {
	name, err := e.choice("OTEL_TRACES_SAMPLER", "parentbased_always_on", "always_on", "always_off", "traceidratio",
		"parentbased_always_off", "parentbased_traceidratio")
	if err != nil {
		return nil, err
	}
	ratio := 1.0
	if arg := strings.TrimSpace(e("OTEL_TRACES_SAMPLER_ARG")); strings.HasSuffix(name, "traceidratio") && arg != "" {
		if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG=%q: it is a ratio between 0 and 1, such as 0.01", arg)
		}
	}
	var s sdktrace.Sampler
	root, parentBased := strings.CutPrefix(name, "parentbased_")
	switch root {
	case "always_on":
		s = sdktrace.AlwaysSample()
	case "always_off":
		s, ratio = sdktrace.NeverSample(), 0
	default:
		s = sdktrace.TraceIDRatioBased(ratio)
	}
	if parentBased {
		s = sdktrace.ParentBased(s)
	}
	return &linkSampler{Sampler: s, changes: ratio > 0}, nil
}

// linkSampler is the sampler that was asked for, except for spans that begin a trace of
// their own and link to others. A publication carries the usage of many checks, so it is
// the child of none. Decided by itself it would be sampled once in a hundred, and a
// sampled check could hardly ever be followed to the other regions.
//
//	has a parent, or is a check  as asked for
//	links to a sampled span      sampled
//	a change of the view         sampled, unless no trace may begin here
//	anything else                as asked for
type linkSampler struct {
	sdktrace.Sampler
	changes bool
}

// ShouldSample implements sdktrace.Sampler.
func (s *linkSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	// Links of a check are its caller's.
	if p.Kind == trace.SpanKindServer || trace.SpanContextFromContext(p.ParentContext).IsValid() {
		return s.Sampler.ShouldSample(p)
	}
	linked := slices.ContainsFunc(p.Links, func(l trace.Link) bool { return l.SpanContext.IsSampled() })
	if linked || s.changes && p.Kind == trace.SpanKindInternal {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return s.Sampler.ShouldSample(p)
}

// traceHandler adds to each line of the log that belongs to a sampled request where its
// trace is.
type traceHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}
