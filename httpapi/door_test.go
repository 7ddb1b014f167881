package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

func TestRouting(t *testing.T) {
	rows := []struct {
		method, target string
		status         int
		allow          string
	}{
		{"GET", "/v1/check", 405, "POST"},
		{"HEAD", "/v1/check", 405, "POST"},
		{"OPTIONS", "/v1/check", 405, "POST"},
		{"POST", "/v1/check/", 404, ""},
		{"POST", "//v1/check", 404, ""},
		{"POST", "/v1/check%3Abatch", 404, ""},
		{"POST", "/v1/usage/a", 405, "GET, HEAD"},
		{"GET", "/v1/usage/a", 200, ""},
		{"HEAD", "/v1/usage/a", 200, ""},
		{"GET", "/v1/usage/a/b", 404, ""},
		{"GET", "/v1/usage/", 404, ""},
		{"GET", "/v1/usage/..", 200, ""}, // a tenant may be called so
		{"HEAD", "/v1/openapi.yaml", 200, ""},
		{"GET", "/v1/authzx", 404, ""},
		{"GET", "/healthz", 404, ""},
		{"DELETE", "/v1/usage/a", 405, "GET, HEAD"},
	}
	for _, row := range rows {
		got := serve(data(t, options(&fake{})), request(row.method, row.target, ""))
		if got.status != row.status || got.field("Allow") != row.allow || got.field("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %d, Allow %q, want %d, %q", row.method, row.target, got.status, got.field("Allow"), row.status, row.allow)
		}
	}
}

func TestSettingsAreReadOncePerRequest(t *testing.T) {
	var reads atomic.Int64
	settings := &httpapi.Settings{Headers: httpapi.Headers{Format: httpapi.Off}}
	o := options(&fake{})
	o.Settings = func() *httpapi.Settings { reads.Add(1); return settings }
	h := data(t, o)
	if got := serve(h, request("POST", "/v1/check", `{"tenant":"a"}`)); got.field("RateLimit") != "" || reads.Load() != 1 {
		t.Errorf("%q after %d reads", got.field("RateLimit"), reads.Load())
	}
	settings = &httpapi.Settings{}
	if got := serve(h, request("POST", "/v1/check", `{"tenant":"a"}`)); got.field("RateLimit") == "" {
		t.Error("a reload has no effect")
	}
}

func TestPanicIsAnAnswerAndALine(t *testing.T) {
	var log bytes.Buffer
	f := &fake{decide: func(context.Context, quota.Request) (quota.Decision, error) { panic("defect 7") }}
	o := options(f)
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	h := data(t, o)
	got := serve(h, request("POST", "/v1/check", `{"tenant":"a"}`))
	if got.status != 500 || got.json(t)["type"] != "urn:regiond:problem:internal" || strings.Contains(got.body, "defect 7") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if !strings.Contains(log.String(), "defect 7") || !strings.Contains(log.String(), "door_test.go") {
		t.Errorf("log without panic or stack: %s", log.String())
	}
	f.decide = nil
	if got := serve(h, request("POST", "/v1/check", `{"tenant":"a"}`)); got.status != 200 {
		t.Errorf("after the panic: %d", got.status)
	}
}

func TestPanicInAHalfWrittenPageCutsTheConnection(t *testing.T) {
	o := options(&fake{})
	o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		panic("defect")
	})
	defer func() {
		if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // the value itself is the signal
			t.Errorf("recovered %v", v)
		}
	}()
	serve(admin(t, o), request("GET", "/metrics", ""))
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
	o.Settings = with(&httpapi.Settings{ForwardAuth: &httpapi.ForwardAuth{TenantHeader: "X-Tenant"}})
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
	}
	close(leave)
	held.Wait()
	f.decide = nil
	if got := serve(h, request("POST", "/v1/check", `{"tenant":"a"}`)); got.status != 200 {
		t.Errorf("afterwards: %d", got.status)
	}
}

func TestDenialsAreLoggedSampled(t *testing.T) {
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
	for _, want := range []string{"level=INFO", "tenant=acme", "policy=standard", "violated=[sustained]", "dim.user=42", "retry_after=12.000001s", "route=/v1/check"} {
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
	log.Reset()
	serve(h, request("GET", "/v1/usage/acme", ""))
	if log.Len() > 0 {
		t.Errorf("a peek is no denial: %s", log.String())
	}
}

func TestWouldDenyAndRefusalsAreLogged(t *testing.T) {
	var log bytes.Buffer
	o := options(&fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
		d := denied(r)
		d.Allowed, d.WouldDeny = true, true
		return d, nil
	}})
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	h := data(t, o)
	serve(h, request("POST", "/v1/check", `{"tenant":"acme"}`))
	if !strings.Contains(log.String(), `msg="would deny"`) {
		t.Errorf("log: %s", log.String())
	}
	o.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth()})
	serve(data(t, o), request("GET", "/v1/authz/x", ""))
	if !strings.Contains(log.String(), "msg=refused why=unattributed") || !strings.Contains(log.String(), "X-Tenant is missing") {
		t.Errorf("log: %s", log.String())
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
	if err := reader.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	var recorded uint64
	for _, m := range rm.ScopeMetrics[0].Metrics {
		switch points := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range points.DataPoints {
				counts[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
			}
		case metricdata.Histogram[float64]:
			for _, p := range points.DataPoints {
				recorded += p.Count
			}
		}
	}
	want := map[string]int64{
		"regiond.http.requests route=POST /v1/check,status=429":         1,
		"regiond.http.requests route=POST /v1/check,status=400":         1,
		"regiond.http.requests route=GET /v1/usage/{tenant},status=200": 1,
		"regiond.http.requests route=none,status=404":                   1,
	}
	want["regiond.http.panics "] = 0
	if fmt.Sprint(counts) != fmt.Sprint(want) || recorded != 4 {
		t.Errorf("got  %v, %d durations\nwant %v, 4", counts, recorded, want)
	}
}
