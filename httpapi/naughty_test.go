package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

// naughtyStrings are texts that break programs: one JSON string per line.
func naughtyStrings(t *testing.T) (texts []string) {
	t.Helper()
	file, err := os.ReadFile("testdata/naughty.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(file) {
		var text string
		if err := json.Unmarshal(line, &text); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		texts = append(texts, text)
	}
	if len(texts) < 400 {
		t.Fatalf("%d strings, want at least 400", len(texts))
	}
	return texts
}

// TestNaughtyStrings sends each of them in every field. The status says whether it is an id
// or a name, only valid ones reach the limiter, whose keys are made of them, and none makes
// a line of the log, a member of one, or a label of a metric.
func TestNaughtyStrings(t *testing.T) {
	var log bytes.Buffer
	reader := sdkmetric.NewManualReader()
	f := &fake{decide: deny}
	o := options(f)
	o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	o.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	now := time.Unix(1_795_198_405, 0)
	o.Now = func() time.Time { // every line is due
		now = now.Add(time.Second)
		return now
	}
	forward := forwardAuth()
	forward.Dimensions = []quota.DimensionSource{{Name: "user", Header: "X-User"}, {Name: "ip", ClientIP: true}}
	o.Settings = with(&httpapi.Settings{ForwardAuth: forward})
	h := data(t, o)
	guarded := o
	guarded.Settings = with(&httpapi.Settings{Access: access(t)})
	tokens := data(t, guarded)
	quoted := func(s string) string {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if429 := func(ok bool, other int) int {
		if ok {
			return http.StatusTooManyRequests
		}
		return other
	}
	members := map[string]bool{}
	for _, s := range naughtyStrings(t) {
		id, name := quota.ValidID(s) == nil, quota.ValidName(s) == nil
		usage := map[bool]int{true: 200, false: 400}[id]
		if s == "" {
			usage = 404
		}
		field := func(method, target, name string) *http.Request {
			r := request(method, target, `{"tenant":"a"}`, "X-Tenant: a")
			r.Header[name] = []string{s}
			return r
		}
		for what, row := range map[string]struct {
			h    http.Handler
			r    *http.Request
			want int
		}{
			"tenant":          {h, request("POST", "/v1/check", `{"tenant":`+quoted(s)+`}`), if429(id, 400)},
			"policy":          {h, request("POST", "/v1/check", `{"tenant":"a","policy":`+quoted(s)+`}`), if429(name, 400)},
			"dimension":       {h, request("POST", "/v1/check", `{"tenant":"a","dimensions":{`+quoted(s)+`:"v"}}`), if429(name, 400)},
			"value":           {h, request("POST", "/v1/check", `{"tenant":"a","dimensions":{"user":`+quoted(s)+`}}`), if429(id, 400)},
			"cost":            {h, request("POST", "/v1/check", `{"tenant":"a","cost":`+quoted(s)+`}`), 400},
			"member":          {h, request("POST", "/v1/check", `{"tenant":"a",`+quoted("x"+s)+`:1}`), 400},
			"report":          {h, request("POST", "/v1/report", `{"tenant":`+quoted(s)+`}`), map[bool]int{true: 200, false: 400}[id]},
			"batch":           {h, request("POST", "/v1/check:batch", `{"checks":[{"tenant":`+quoted(s)+`}]}`), 200},
			"body":            {h, request("POST", "/v1/check", s), 400},
			"path of usage":   {h, request("GET", "/v1/usage/"+url.PathEscape(s), ""), usage},
			"query":           {h, request("GET", "/v1/usage/a?dim.user="+url.QueryEscape(s), ""), map[bool]int{true: 200, false: 400}[id]},
			"parameter":       {h, request("GET", "/v1/usage/a?x"+url.QueryEscape(s)+"=1", ""), 400},
			"Idempotency-Key": {h, field("POST", "/v1/check", "Idempotency-Key"), if429(id && len(s) <= quota.MaxIdempotencyKey, 400)},
			"token":           {tokens, field("POST", "/v1/check", "X-Regiond-Token"), 401},
			"bearer":          {tokens, field("POST", "/v1/check", "Authorization"), 401},
			"X-Tenant":        {h, field("GET", "/v1/authz/x", "X-Tenant"), if429(id && !strings.Contains(s, ","), 403)},
			"X-User":          {h, field("GET", "/v1/authz/x", "X-User"), if429(s == "" || id && !strings.Contains(s, ","), 403)},
			"X-Forwarded-For": {h, field("GET", "/v1/authz/x", "X-Forwarded-For"), 429},
			"Traceparent":     {h, field("GET", "/v1/authz/x", "Traceparent"), 429},
		} {
			got := serve(row.h, row.r)
			if got.status != row.want {
				t.Errorf("%q as %s: %d, want %d: %s", s, what, got.status, row.want, got.body)
			}
			if got.body != "" && !json.Valid([]byte(got.body)) {
				t.Errorf("%q as %s: the answer is not JSON: %q", s, what, got.body)
			}
		}
	}
	for _, r := range f.seen {
		if errs := r.Validate(); len(errs) > 0 {
			t.Errorf("the limiter got %+v", r)
		}
	}
	for line := range bytes.Lines(log.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("a line of the log is %q", line)
		}
		members[fmt.Sprint(m["msg"])] = true
		for member := range m {
			members[member] = true
		}
	}
	for member := range members {
		if dim, ok := strings.CutPrefix(member, "dim."); ok && quota.ValidName(dim) == nil {
			continue
		}
		if !slices.Contains(strings.Fields("time level msg why detail route peer tenant policy cost violated retry_after basis mode denied refused"), member) {
			t.Errorf("the log has %q", member)
		}
	}
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	routes := append(httpapi.Endpoints(), "none")
	for _, m := range rm.ScopeMetrics[0].Metrics {
		sum, ok := m.Data.(metricdata.Sum[int64])
		if !ok {
			continue
		}
		for _, p := range sum.DataPoints {
			if route, ok := p.Attributes.Value("route"); ok && !slices.Contains(routes, route.AsString()) {
				t.Errorf("%s has route %q", m.Name, route.AsString())
			}
		}
	}
}
