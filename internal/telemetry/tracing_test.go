package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// environmentOf makes one of "NAME=value" words.
func environmentOf(text string) environment {
	values := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }
}

func TestReadTracing(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 "
	for _, row := range []struct {
		env      string
		exporter string
		sampler  string // of the description
		tenant   string
		distrust bool
	}{
		// Nothing is sent anywhere unless somebody says so.
		{"", "none", "", "", false},
		{"OTEL_TRACES_SAMPLER=always_on", "none", "", "", false},
		{endpoint + "OTEL_TRACES_EXPORTER=none", "none", "", "", false},
		{endpoint + "OTEL_SDK_DISABLED=TRUE OTEL_TRACES_SAMPLER=nonsense", "none", "", "", false},
		// Either of these says so.
		{endpoint, "http/protobuf", "ParentBased{root:AlwaysOn", tenantOff, false},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://x/y", "http/protobuf", "ParentBased{root:AlwaysOn", tenantOff, false},
		{"OTEL_TRACES_EXPORTER=otlp", "http/protobuf", "ParentBased{root:AlwaysOn", tenantOff, false},
		{"OTEL_TRACES_EXPORTER=console", "console", "ParentBased{root:AlwaysOn", tenantOff, false},
		// The signal's own variable wins.
		{endpoint + "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "grpc", "ParentBased{root:AlwaysOn", tenantOff, false},
		{endpoint + "OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf", "http/protobuf", "ParentBased{root:AlwaysOn", tenantOff, false},
		{endpoint + "OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.01", "http/protobuf", "ParentBased{root:TraceIDRatioBased{0.01}", tenantOff, false},
		{endpoint + "OTEL_TRACES_SAMPLER=traceidratio", "http/protobuf", "TraceIDRatioBased{1}", tenantOff, false},
		{endpoint + "OTEL_TRACES_SAMPLER=always_off", "http/protobuf", "AlwaysOffSampler", tenantOff, false},
		{endpoint + "REGIOND_TRACE_TENANT=hash REGIOND_TRACE_PARENT=link", "http/protobuf", "ParentBased{root:AlwaysOn", tenantHash, true},
	} {
		s, err := readTracing(environmentOf(row.env))
		if err != nil || s.exporter != row.exporter || s.tenant != row.tenant || s.linkParents != row.distrust {
			t.Errorf("%q: %+v, %v", row.env, s, err)
			continue
		}
		if s.exporter != "none" && !strings.HasPrefix(s.sampler.Description(), row.sampler) {
			t.Errorf("%q: the sampler is %s", row.env, s.sampler.Description())
		}
	}
}

// TestReadTracingMistakes: each is named, with its value and what it may be.
func TestReadTracingMistakes(t *testing.T) {
	for _, mistake := range []string{
		"OTEL_TRACES_EXPORTER=jaeger", "OTEL_EXPORTER_OTLP_PROTOCOL=http/json", "OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=ftp://x", "OTEL_TRACES_SAMPLER=parentbased_sometimes",
		"REGIOND_TRACE_TENANT=sha256", "REGIOND_TRACE_PARENT=maybe",
	} {
		name, value, _ := strings.Cut(mistake, "=")
		_, err := readTracing(environmentOf("OTEL_TRACES_EXPORTER=otlp " + mistake))
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", mistake, err)
		}
	}
	for _, ratio := range []string{"1%", "-0.1", "1.01", "NaN"} {
		_, err := readTracing(environmentOf("OTEL_TRACES_EXPORTER=otlp OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=" + ratio))
		if err == nil || !strings.Contains(err.Error(), ratio) {
			t.Errorf("ratio %s: %v", ratio, err)
		}
	}
}

func spanContext(sampled bool) trace.SpanContext {
	var c trace.SpanContextConfig
	binary.BigEndian.PutUint64(c.TraceID[8:], rand.Uint64()|1)
	binary.BigEndian.PutUint64(c.SpanID[:], rand.Uint64()|1)
	c.TraceFlags = c.TraceFlags.WithSampled(sampled)
	return trace.NewSpanContext(c)
}

// TestLinkSampler: what belongs to something sampled is sampled, and a caller's link
// samples nothing.
func TestLinkSampler(t *testing.T) {
	yes, no := spanContext(true), spanContext(false)
	for _, row := range []struct {
		sampler string
		kind    trace.SpanKind
		parent  trace.SpanContext
		link    trace.SpanContext
		want    bool
	}{
		{"parentbased_traceidratio", trace.SpanKindServer, trace.SpanContext{}, trace.SpanContext{}, false},
		{"parentbased_traceidratio", trace.SpanKindServer, yes, trace.SpanContext{}, true},
		{"parentbased_traceidratio", trace.SpanKindServer, no, trace.SpanContext{}, false},
		{"parentbased_traceidratio", trace.SpanKindServer, trace.SpanContext{}, yes, false}, // a caller's
		{"parentbased_traceidratio", trace.SpanKindProducer, trace.SpanContext{}, yes, true},
		{"parentbased_traceidratio", trace.SpanKindProducer, trace.SpanContext{}, no, false},
		{"parentbased_traceidratio", trace.SpanKindClient, trace.SpanContext{}, yes, true}, // a batch
		{"parentbased_traceidratio", trace.SpanKindProducer, no, yes, false},               // its parent decides
		{"parentbased_traceidratio", trace.SpanKindInternal, trace.SpanContext{}, trace.SpanContext{}, true},
		{"parentbased_always_off", trace.SpanKindInternal, trace.SpanContext{}, trace.SpanContext{}, false},
		{"parentbased_always_off", trace.SpanKindProducer, trace.SpanContext{}, yes, true}, // a gateway wanted it
		{"always_off", trace.SpanKindServer, yes, trace.SpanContext{}, false},
		{"always_on", trace.SpanKindServer, no, trace.SpanContext{}, true},
	} {
		s, err := environmentOf("OTEL_TRACES_SAMPLER=" + row.sampler + " OTEL_TRACES_SAMPLER_ARG=0.0000001").sampler()
		if err != nil {
			t.Fatal(err)
		}
		p := sdktrace.SamplingParameters{ParentContext: context.Background(), Kind: row.kind, TraceID: trace.TraceID{0xff, 15: 0xff, 8: 0xff}}
		if row.parent.IsValid() {
			p.ParentContext = trace.ContextWithSpanContext(p.ParentContext, row.parent)
		}
		if row.link.IsValid() {
			p.Links = []trace.Link{{SpanContext: row.link}}
		}
		if got := s.ShouldSample(p).Decision == sdktrace.RecordAndSample; got != row.want {
			t.Errorf("%+v: sampled %v", row, got)
		}
	}
}

// TestTenantInSpans: off shows nothing, hash the same in each region and never the id.
func TestTenantInSpans(t *testing.T) {
	with := func(tenant string) *Telemetry {
		return &Telemetry{tracing: &tracing{traceSettings: traceSettings{tenant: tenant}, provider: sdktrace.NewTracerProvider()}}
	}
	secret := []byte("a secret")
	if with(tenantOff).Tenant(secret) != nil {
		t.Error("off shows something")
	}
	if got := with(tenantRaw).Tenant(secret)("acme"); got != "acme" {
		t.Errorf("raw is %q", got)
	}
	hashed := with(tenantHash).Tenant(secret)
	if got := hashed("acme"); got != hashed("acme") || got == hashed("acmf") || got == with(tenantHash).Tenant([]byte("another"))("acme") || len(got) != 16 {
		t.Errorf("hash is %q", got)
	}
	off := &Telemetry{}
	if off.Tenant(secret) != nil || off.Tracer("sync") != nil || off.Sampled() != nil || off.LinksParents() {
		t.Error("tracing that is off makes something")
	}
}
