package httpapi_test

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// traced is options with a tracer that keeps every span, as far as it is sampled.
func traced(l httpapi.Limiter, sampler sdktrace.Sampler) (httpapi.Options, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	o := options(l)
	o.Tracing = &httpapi.Tracing{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(spans)).Tracer("test")}
	return o, spans
}

func attributesOf(s sdktrace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, kv := range s.Attributes() {
		all[string(kv.Key)] = kv.Value.String()
	}
	return all
}

// TestSpans: one row for each kind of call.
func TestSpans(t *testing.T) {
	const check = `{"tenant":"acme","cost":2}`
	for _, row := range []struct {
		method, target, body string
		decide               func(context.Context, quota.Request) (quota.Decision, error)
		name, want           string // "name=value name=value"
		status               codes.Code
	}{
		{"POST", "/v1/check", check, nil, "POST /v1/check", "regiond.decision=allowed regiond.remaining=19 regiond.cost=2 regiond.limit=burst http.response.status_code=200", codes.Unset},
		{"POST", "/v1/check", check, deny, "POST /v1/check", `regiond.decision=denied regiond.violated=["sustained"] http.response.status_code=429`, codes.Unset},
		{"POST", "/v1/check", check, observed, "POST /v1/check", "regiond.decision=would_deny http.response.status_code=200", codes.Unset},
		{"POST", "/v1/check", check, shed, "POST /v1/check", "regiond.decision=shed regiond.basis=shed regiond.reason=overloaded http.response.status_code=503", codes.Error},
		{"POST", "/v1/report", check, shed, "POST /v1/report", "regiond.decision=shed", codes.Error},
		{"POST", "/v1/check", "{", nil, "POST /v1/check", "http.response.status_code=400", codes.Unset},
		{"POST", "/v1/check", check, fails, "POST /v1/check", "http.response.status_code=503", codes.Error},
		{"POST", "/v1/report", check, nil, "POST /v1/report", "regiond.decision=reported", codes.Unset},
		{"GET", "/v1/usage/acme", "", deny, "GET /v1/usage/{tenant}", "regiond.decision=denied http.response.status_code=200", codes.Unset},
		{"POST", "/v1/check:batch", `{"checks":[` + check + "," + check + "]}", deny, "POST /v1/check:batch", "regiond.checks=2 regiond.denied=2 regiond.shed=0", codes.Unset},
		{"POST", "/v1/check:batch", `{"checks":[` + check + "]}", shed, "POST /v1/check:batch", "regiond.checks=1 regiond.denied=0 regiond.shed=1", codes.Unset},
		{"PURGE", "/v1/authz/x", "", nil, "_OTHER /v1/authz/{path...}", "regiond.decision=allowed http.request.method=_OTHER", codes.Unset},
		{"GET", "/v1/authz-nginx", "", deny, "GET /v1/authz-nginx", "regiond.decision=denied http.response.status_code=403", codes.Unset},
	} {
		o, spans := traced(&fake{decide: row.decide}, sdktrace.AlwaysSample())
		o.Settings = with(&httpapi.Settings{ForwardAuth: &quota.ForwardAuth{Tenant: quota.TenantSource{Header: "X-Tenant"}}})
		serve(data(t, o), request(row.method, row.target, row.body, "X-Tenant: acme", "Content-Type: application/json"))
		ended := spans.Ended()
		if len(ended) != 1 || ended[0].Name() != row.name || ended[0].SpanKind() != trace.SpanKindServer || ended[0].Status().Code != row.status {
			t.Errorf("%s %s: spans %v", row.method, row.target, ended)
			continue
		}
		got := attributesOf(ended[0])
		for pair := range strings.FieldsSeq(row.want) {
			name, value, _ := strings.Cut(pair, "=")
			if got[name] != value {
				t.Errorf("%s %s: %s is %q, want %q", row.method, row.target, name, got[name], value)
			}
		}
		if _, shown := got["regiond.tenant"]; shown {
			t.Errorf("%s %s shows the tenant", row.method, row.target)
		}
	}
}

// TestNoSpan: only checks, reports and usage have spans.
func TestNoSpan(t *testing.T) {
	o, spans := traced(&fake{}, sdktrace.AlwaysSample())
	for _, target := range []string{"/healthz", "/readyz", "/metrics", "/v1/regions", "/debug/pprof/"} {
		serve(admin(t, o), request("GET", target, ""))
	}
	serve(data(t, o), request("GET", "/v1/openapi.yaml", ""))
	serve(data(t, o), request("GET", "/nowhere", ""))
	if got := spans.Started(); len(got) > 0 {
		t.Errorf("spans %v", got)
	}
}

// TestSpanParents: a caller's trace is continued, or linked to, and decides what is sampled.
func TestSpanParents(t *testing.T) {
	for _, row := range []struct {
		header   string
		distrust bool
		spans    int
	}{
		{"Accept: any", false, 0},
		{"traceparent: " + traceparent + "\ntracestate: a=b", false, 1},
		{"traceparent: " + strings.TrimSuffix(traceparent, "1") + "0", false, 0},
		{"traceparent: nonsense", false, 0},
		{"traceparent: " + traceparent + "\ntraceparent: " + traceparent, false, 0},
		{"traceparent: " + traceparent, true, 0}, // an end user cannot have it sampled
	} {
		o, spans := traced(&fake{}, sdktrace.ParentBased(sdktrace.NeverSample()))
		o.Tracing.Distrust = row.distrust
		serve(data(t, o), request("POST", "/v1/check", `{"tenant":"acme"}`, strings.Split(row.header, "\n")...))
		if got := spans.Ended(); len(got) != row.spans {
			t.Errorf("%+v: spans %v", row, got)
		} else if row.spans > 0 && (got[0].Parent().SpanID().String() != "00f067aa0ba902b7" || got[0].Parent().TraceState().String() != "a=b") {
			t.Errorf("%+v: below %v", row, got[0].Parent())
		}
	}
	o, spans := traced(&fake{}, sdktrace.AlwaysSample())
	o.Tracing.Distrust = true
	serve(data(t, o), request("POST", "/v1/check", `{"tenant":"acme"}`, "traceparent: "+traceparent))
	got := spans.Ended()
	if len(got) != 1 || got[0].Parent().IsValid() || len(got[0].Links()) != 1 || got[0].Links()[0].SpanContext.SpanID().String() != "00f067aa0ba902b7" {
		t.Errorf("distrusted: %v", got)
	}
}

// TestSpanReachesLimiter: the limiter continues the span, and a panic in it is an
// error of the span. The tenant is shown as configured.
func TestSpanReachesLimiter(t *testing.T) {
	var seen trace.SpanContext
	f := &fake{decide: func(ctx context.Context, r quota.Request) (quota.Decision, error) {
		seen = trace.SpanContextFromContext(ctx)
		return allowed(r), nil
	}}
	o, spans := traced(f, sdktrace.AlwaysSample())
	o.Tracing.Tenant = strings.ToUpper
	h := data(t, o)
	serve(h, request("POST", "/v1/check", `{"tenant":"acme"}`))
	got := spans.Ended()
	if len(got) != 1 || !seen.Equal(got[0].SpanContext()) || attributesOf(got[0])["regiond.tenant"] != "ACME" {
		t.Errorf("the limiter saw %v of %v", seen, got)
	}
	f.decide = func(context.Context, quota.Request) (quota.Decision, error) { panic("defect") }
	serve(h, request("POST", "/v1/check", `{"tenant":"acme"}`))
	if got := spans.Ended(); len(got) != 2 || got[1].Status().Code != codes.Error {
		t.Errorf("spans %v", got)
	}
}

// TestDecisionIDs: an answer has one id in its header and its body, that of the trace where there is one,
// also while calls have no spans; and each decision of a batch has it.
func TestDecisionIDs(t *testing.T) {
	const mine, theirs = "ab0000000000000000000000000000cd", "4bf92f3577b34da6a3ce929d0e0e4736"
	own := &httpapi.Settings{ForwardAuth: &quota.ForwardAuth{Tenant: quota.TenantSource{Header: "X-Tenant"}}}
	for _, row := range []struct {
		traced, distrust bool
		parent, want     string // "" is the span's
	}{
		{false, false, "", mine},
		{false, false, traceparent, theirs},
		{false, false, traceparent + "-more-of-a-later-version", mine},
		{false, false, "nonsense", mine},
		{false, false, traceparent + "\n" + traceparent, mine},
		{true, false, traceparent + "\n" + traceparent, ""},
		{true, false, "ff" + traceparent[2:], ""},
		{true, false, "", ""},
		{true, false, traceparent, theirs},
		{true, true, traceparent, ""},
	} {
		for _, call := range []string{"POST /v1/check", "POST /v1/report", "GET /v1/usage/acme", "GET /v1/authz/x", "GET /v1/authz-nginx", "POST /v1/check:batch"} {
			body := `{"tenant":"acme"}`
			if strings.HasSuffix(call, ":batch") {
				body = `{"checks":[` + body + `,` + body + `]}`
			}
			o, spans := traced(&fake{decide: deny}, sdktrace.AlwaysSample())
			if o.Tracing.Distrust = row.distrust; !row.traced {
				o.Tracing = nil
			}
			o.Settings = with(own)
			header := []string{"X-Tenant: acme", "Content-Type: application/json"}
			if row.parent != "" {
				for parent := range strings.SplitSeq(row.parent, "\n") {
					header = append(header, "traceparent: "+parent)
				}
			}
			method, target, _ := strings.Cut(call, " ")
			got := serve(data(t, o), request(method, target, body, header...))
			want := row.want
			if want == "" {
				if want = spans.Ended()[0].SpanContext().TraceID().String(); want == mine || want == theirs {
					t.Fatalf("%s %+v: the span has trace %s", call, row, want)
				}
			}
			ids, inHeader := 1, want
			if strings.HasSuffix(call, ":batch") {
				ids, inHeader = 2, ""
			}
			if n := strings.Count(got.body, `"id":"`+want+`"`); n != ids || got.field("X-Regiond-Decision-Id") != inHeader {
				t.Errorf("%s %+v: header field %q, want %s\n%s", call, row, got.field("X-Regiond-Decision-Id"), want, got.body)
			}
		}
	}
}
