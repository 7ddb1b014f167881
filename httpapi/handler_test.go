package httpapi_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

func TestSettingsAreReadOncePerRequest(t *testing.T) {
	reads := 0
	o := options(&fake{})
	o.Settings = func() *httpapi.Settings {
		reads++
		return &httpapi.Settings{Headers: quota.Headers{Format: map[int]quota.HeaderFormat{1: quota.HeadersOff}[reads]}}
	}
	h := data(t, o)
	for n, want := range []bool{false, true} {
		got := serve(h, request("POST", "/v1/check", `{"tenant":"a"}`))
		if (got.field("RateLimit") != "") != want || reads != n+1 {
			t.Errorf("request %d: %v after %d reads", n, got.header, reads)
		}
	}
}

func TestPanicIsAnsweredAndLogged(t *testing.T) {
	var log bytes.Buffer
	f := &fake{decide: func(context.Context, quota.Request) (quota.Decision, error) { panic("defect 7") }}
	o := options(f)
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	h := data(t, o)
	got := serve(h, request("POST", "/v1/check", `{"tenant":"a"}`))
	if got.status != 500 || got.json(t)["type"] != "urn:regiond:problem:internal" || strings.Contains(got.body, "defect 7") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if !strings.Contains(log.String(), "defect 7") || !strings.Contains(log.String(), "handler_test.go") {
		t.Errorf("log without panic or stack: %s", log.String())
	}
	f.decide = nil
	if got := serve(h, request("POST", "/v1/check", `{"tenant":"a"}`)); got.status != 200 {
		t.Errorf("after the panic: %d", got.status)
	}
}

func TestPanicInAHalfWrittenAnswerCutsTheConnection(t *testing.T) {
	for name, begin := range map[string]func(w http.ResponseWriter){
		"written": func(w http.ResponseWriter) { _, _ = w.Write([]byte("half")) },
		"flushed": func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(&fake{})
			o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				begin(w)
				panic("defect")
			})
			defer func() {
				if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // the value itself is the signal
					t.Errorf("recovered %v", v)
				}
			}()
			serve(admin(t, o), request("GET", "/metrics", ""))
		})
	}
}

// TestPanicBeforeAnAnswer: what another handler had set for its answer does not describe the problem document.
func TestPanicBeforeAnAnswer(t *testing.T) {
	o := options(&fake{})
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", "3")
		panic("defect")
	})
	got := serve(admin(t, o), request("GET", "/metrics", ""))
	if got.status != 500 || got.field("Content-Encoding")+got.field("Content-Length") != "" || got.field("Content-Type") != "application/problem+json" {
		t.Errorf("%+v", got)
	}
}

func TestTooManyInFlight(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := &fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
		entered <- struct{}{}
		<-leave
		return allowed(r), nil
	}}
	o := options(f)
	o.MaxInFlight = 2
	o.Settings = with(&httpapi.Settings{ForwardAuth: &quota.ForwardAuth{Tenant: quota.TenantSource{Header: "X-Tenant"}}})
	h := data(t, o)
	var held sync.WaitGroup
	for range 2 {
		held.Go(func() { serve(h, request("POST", "/v1/check", `{"tenant":"a"}`)) })
		<-entered
	}
	rows := []struct {
		method, target string
		status         int
		decision       string
	}{
		{"POST", "/v1/check", 503, ""},
		{"GET", "/v1/authz/x", 429, "deny"},
		{"GET", "/v1/authz-nginx", 403, "deny"},
	}
	for _, row := range rows {
		got := serve(h, request(row.method, row.target, `{"tenant":"a"}`, "X-Tenant: a"))
		if got.status != row.status || got.field("Retry-After") != "1" || got.field("X-Regiond-Decision") != row.decision {
			t.Errorf("%s: %d %v", row.target, got.status, got.header)
		}
		wantShed(t, got)
	}
	if n := f.turnedAway(); n != len(rows) {
		t.Errorf("%d were counted as shed, want %d", n, len(rows))
	}
	close(leave)
	held.Wait()
	f.decide = nil
	if got := serve(h, request("POST", "/v1/check", `{"tenant":"a"}`)); got.status != 200 {
		t.Errorf("afterwards: %d", got.status)
	}
}

// Batches are decoded few at a time, so what one of them waits for must not be waited for then: the rest of a
// body, or the limiter.
func TestBatchesDoNotWaitForOthersLimiter(t *testing.T) {
	const batches = 100
	var all sync.WaitGroup
	all.Add(batches)
	o := options(&fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
		all.Done()
		all.Wait() // until each of them is in the limiter
		return allowed(r), nil
	}})
	o.Deadline = time.Minute // or one that comes late is refused, and never in the limiter
	h := data(t, o)
	slow, part := io.Pipe()
	half := request("POST", "/v1/check:batch", "")
	half.Body, half.ContentLength = slow, -1
	halfDone := make(chan struct{})
	go func() {
		defer close(halfDone)
		serve(h, half)
	}()
	if _, err := part.Write([]byte(`{"checks":[`)); err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	for range batches {
		done.Go(func() {
			if r := serve(h, request("POST", "/v1/check:batch", `{"checks":[{"tenant":"acme"}]}`)); r.status != http.StatusOK {
				t.Errorf("got %d, want 200", r.status)
			}
		})
	}
	done.Wait()
	_ = part.CloseWithError(io.ErrUnexpectedEOF)
	<-halfDone
}

func TestDenialsAndRefusalsAreLoggedSampled(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1_795_198_405, 0)
	o := options(&fake{decide: deny})
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	o.Now = func() time.Time { return now }
	h := data(t, o)
	const check = `{"tenant":"acme","dimensions":{"user":"42"}}`
	for range 25 {
		serve(h, request("POST", "/v1/check", check))
	}
	if n := strings.Count(log.String(), "msg=denied"); n != 10 {
		t.Errorf("%d lines in a second, want 10", n)
	}
	for _, want := range []string{"level=INFO", "tenant=acme", "policy=standard", "violated=[sustained]", "dim.user=42", "retry_after_ms=12001", "route=/v1/check"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, log.String())
		}
	}
	log.Reset()
	now = now.Add(time.Second)
	serve(h, request("POST", "/v1/check", check))
	if !strings.Contains(log.String(), "suppressed=15") {
		t.Errorf("the next second: %s", log.String())
	}
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	o.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth()})
	o.Limiter = &fake{decide: observed}
	h = data(t, o)
	serve(h, request("POST", "/v1/check", check))
	serve(h, request("GET", "/v1/authz/x", ""))
	for _, want := range []string{`msg="would deny"`, "msg=refused why=unattributed", "X-Tenant is missing"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, log.String())
		}
	}
	o.Limiter = &fake{decide: shed}
	serve(data(t, o), request("POST", "/v1/report", check))
	if want := `msg=shed tenant=acme policy=standard cost=1 violated=[] retry_after_ms=1000 basis=shed mode=global reason=overloaded`; !strings.Contains(log.String(), want) {
		t.Errorf("no %s in %s", want, log.String())
	}
	log.Reset()
	serve(h, request("GET", "/v1/usage/acme", ""))
	if log.Len() > 0 {
		t.Errorf("a peek is logged: %s", log.String())
	}
}

func TestMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	o := options(&fake{decide: deny})
	o.Meter = provider.Meter("test")
	h := data(t, o)
	serve(h, request("POST", "/v1/check", `{"tenant":"secret-tenant"}`))
	serve(h, request("POST", "/v1/check", `{"tenant":"a b"}`))
	serve(h, request("GET", "/v1/usage/secret-tenant", ""))
	serve(h, request("GET", "/wp-login.php", ""))
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		switch points := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range points.DataPoints {
				counts[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
			}
		case metricdata.Histogram[float64]:
			for _, p := range points.DataPoints {
				counts[m.Name] += int64(p.Count) //nolint:gosec // few
			}
		}
	}
	want := map[string]int64{
		"regiond.http.requests route=POST /v1/check,status=429":         1,
		"regiond.http.requests route=POST /v1/check,status=400":         1,
		"regiond.http.requests route=GET /v1/usage/{tenant},status=200": 1,
		"regiond.http.requests route=none,status=404":                   1,
		"regiond.http.panics ":                                          0,
		"regiond.http.duration":                                         4,
	}
	if !maps.Equal(counts, want) {
		t.Errorf("got  %v\nwant %v", counts, want)
	}
}
