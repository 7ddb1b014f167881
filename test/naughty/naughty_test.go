// Package naughty_test sends texts that break programs to the API on the real limiter. What
// is an id and what a name it takes from docs/configure.md, topology.yaml and openapi.yaml,
// not from the program.
package naughty_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// The rules of the documents.
var (
	anID    = regexp.MustCompile(`^[!-z|~]{1,256}$`) // printable ASCII without space or braces
	aName   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	aKey    = regexp.MustCompile(`^[!-z|~]{1,64}$`) // of Idempotency-Key
	aRoute  = regexp.MustCompile(`^(none|(GET|POST|ANY) /v1/(check|check:batch|report|usage/\{tenant\}|authz|authz/\{path\.\.\.\}|authz-nginx|openapi\.yaml))$`)
	aMember = strings.Fields("time level msg id why detail route peer tenant policy cost violated retry_after_ms basis mode denied refused")
)

// keyOf is a key in the store: a tenant, and the value of the dimension that the limit
// counts by, after its length.
var keyOf = regexp.MustCompile(`^rl:\{([^{}]*)\}:l:[a-z0-9_-]+:(?:user:(?:-|(\d+)\.(.*)))?:?:$`)

// seenStore is a store in memory that notes the keys that it is asked for.
type seenStore struct {
	*memstore.Store
	keys map[string]bool
}

func (s *seenStore) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	for i := range calls {
		for _, key := range calls[i].Keys {
			s.keys[key] = true
		}
	}
	s.Store.Decide(ctx, calls, verdicts)
}

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

// world is the API on a limiter under whose policies a tenant has one request an hour.
// Policies and dimensions are named by all texts that are names.
type world struct {
	data, guarded http.Handler // guarded wants a token
	store         *seenStore
	log           bytes.Buffer
	metrics       *sdkmetric.ManualReader
}

func newWorld(t *testing.T, texts []string) *world {
	t.Helper()
	w := &world{store: &seenStore{memstore.New(memstore.Options{}), map[string]bool{}}, metrics: sdkmetric.NewManualReader()}
	c := limiter.Config{Region: "local", Default: &quota.Tenant{Policy: "standard"}, MaxUnknown: 1 << 20}
	for _, name := range append(slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return !aName.MatchString(s) }), "standard") {
		c.Dimensions = append(c.Dimensions, name)
		c.Policies = append(c.Policies, quota.Policy{Name: name, EnforcePercent: -1, Limits: []quota.Limit{
			{Name: "all", Units: 1, Window: time.Hour},
			{Name: "user", Units: 1, Window: time.Hour, By: []string{"user"}},
		}})
	}
	log := slog.New(slog.NewJSONHandler(&w.log, nil))
	l, err := limiter.New(limiter.Options{Store: w.store, Config: c, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.metrics)).Meter("test")
	now := time.Unix(1_795_198_405, 0)
	handler := func(s *httpapi.Settings) http.Handler {
		h, err := httpapi.NewData(httpapi.Options{
			Limiter: l, Ready: func() (bool, []string) { return true, nil }, Regions: func() any { return nil },
			Metrics: http.NotFoundHandler(), Logger: log, Meter: meter,
			Settings: func() *httpapi.Settings { return s },
			Now: func() time.Time { // every line is due
				now = now.Add(time.Second)
				return now
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	w.data = handler(&httpapi.Settings{ForwardAuth: &quota.ForwardAuth{
		Tenant:     quota.TenantSource{Header: "X-Tenant"},
		Dimensions: []quota.DimensionSource{{Name: "user", Header: "X-User"}},
		Missing:    quota.MissingDeny, IPv6Prefix: quota.DefaultIPv6Prefix,
	}})
	w.guarded = handler(&httpapi.Settings{Access: access.Access{Tokens: []access.Token{{Name: "ci", SHA256: sha256.Sum256([]byte("data-secret")), Scopes: access.DefaultScopes}}}})
	return w
}

// ask sends a request, and again where the first one was allowed: a second one in the hour
// is denied.
func ask(h http.Handler, method, target, body string, header http.Header) *httptest.ResponseRecorder {
	for {
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.Host = "127.0.0.1"
		maps.Copy(r.Header, header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || !strings.HasPrefix(target, "/v1/authz") && target != "/v1/check" || w.Header().Get("Idempotency-Replayed") != "" {
			return w
		}
	}
}

// TestNaughtyStrings sends each of them in every field. The status says whether it is an id
// or a name, only valid ones are in the keys of the store, and none makes a line of the log, a
// member of one, or a label of a metric.
func TestNaughtyStrings(t *testing.T) {
	texts := naughtyStrings(t)
	w := newWorld(t, texts)
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
	ids := map[string]bool{"a": true}
	for _, s := range texts {
		id, name := anID.MatchString(s), aName.MatchString(s)
		if id {
			ids[s] = true
		}
		usage := map[bool]int{true: 200, false: 400}[id]
		if s == "" {
			usage = 404
		}
		single := id && !strings.Contains(s, ",") // gateways join duplicated lines by commas
		for _, row := range []struct {
			what, method, target, body string
			want                       int
		}{
			{"tenant", "POST", "/v1/check", `{"tenant":` + quoted(s) + `}`, if429(id, 400)},
			{"policy", "POST", "/v1/check", `{"tenant":"a","policy":` + quoted(s) + `}`, if429(name, 400)},
			{"dimension", "POST", "/v1/check", `{"tenant":"a","dimensions":{` + quoted(s) + `:"a"}}`, if429(name, 400)},
			{"value", "POST", "/v1/check", `{"tenant":"a","dimensions":{"user":` + quoted(s) + `}}`, if429(id, 400)},
			{"cost", "POST", "/v1/check", `{"tenant":"a","cost":` + quoted(s) + `}`, 400},
			{"member", "POST", "/v1/check", `{"tenant":"a",` + quoted("x"+s) + `:1}`, 400},
			{"report", "POST", "/v1/report", `{"tenant":` + quoted(s) + `}`, map[bool]int{true: 200, false: 400}[id]},
			{"batch", "POST", "/v1/check:batch", `{"checks":[{"tenant":` + quoted(s) + `}]}`, 200},
			{"body", "POST", "/v1/check", s, 400},
			{"path of usage", "GET", "/v1/usage/" + url.PathEscape(s), "", usage},
			{"query", "GET", "/v1/usage/a?dim.user=" + url.QueryEscape(s), "", map[bool]int{true: 200, false: 400}[id]},
			{"parameter", "GET", "/v1/usage/a?x" + url.QueryEscape(s) + "=1", "", 400},
		} {
			judge(t, s, row.what, row.want, ask(w.data, row.method, row.target, row.body, nil))
		}
		for _, row := range []struct {
			header, target string
			h              http.Handler
			want           int
		}{
			{"Idempotency-Key", "/v1/check", w.data, if429(aKey.MatchString(s), 400)},
			{"X-Regiond-Token", "/v1/check", w.guarded, 401},
			{"Authorization", "/v1/check", w.guarded, 401},
			{"X-Tenant", "/v1/authz/x", w.data, if429(single, 403)},
			{"X-User", "/v1/authz/x", w.data, if429(single || s == "", 403)},
			{"X-Forwarded-For", "/v1/authz/x", w.data, 429},
			{"Traceparent", "/v1/authz/x", w.data, 429},
		} {
			header := http.Header{"X-Tenant": {"a"}}
			header[row.header] = []string{s}
			judge(t, s, row.header, row.want, ask(row.h, "POST", row.target, `{"tenant":"a"}`, header))
		}
	}
	w.judgeKeys(t, ids)
	w.judgeLog(t)
	w.judgeMetrics(t)
}

func judge(t *testing.T, s, what string, want int, got *httptest.ResponseRecorder) {
	t.Helper()
	if got.Code != want {
		t.Errorf("%q as %s: %d, want %d: %s", s, what, got.Code, want, got.Body)
	}
	if got.Body.Len() > 0 && !json.Valid(got.Body.Bytes()) {
		t.Errorf("%q as %s: the answer is not JSON: %q", s, what, got.Body)
	}
}

// judgeKeys finds each id as a tenant and as a user, and nothing else.
func (w *world) judgeKeys(t *testing.T, ids map[string]bool) {
	t.Helper()
	tenants, users := map[string]bool{}, map[string]bool{"a": true}
	for key := range w.store.keys {
		m := keyOf.FindStringSubmatch(key)
		if m == nil || m[2] != "" && fmt.Sprint(len(m[3])) != m[2] {
			t.Errorf("the store has the key %q", key)
			continue
		}
		tenants[m[1]] = true
		if m[2] != "" {
			users[m[3]] = true
		}
	}
	for what, found := range map[string]map[string]bool{"tenant": tenants, "user": users} {
		for s := range found {
			if !ids[s] {
				t.Errorf("a key has the %s %q", what, s)
			}
		}
		for s := range ids {
			if !found[s] {
				t.Errorf("no key has the %s %q", what, s)
			}
		}
	}
}

// judgeLog reads every line.
func (w *world) judgeLog(t *testing.T) {
	t.Helper()
	members := map[string]bool{}
	for line := range bytes.Lines(w.log.Bytes()) {
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
		if dim, ok := strings.CutPrefix(member, "dim."); ok && aName.MatchString(dim) {
			continue
		}
		if !slices.Contains(aMember, member) {
			t.Errorf("the log has %q", member)
		}
	}
	if !members["denied"] || !members["refused"] {
		t.Errorf("the log has %v", slices.Sorted(maps.Keys(members)))
	}
}

// judgeMetrics reads every label.
func (w *world) judgeMetrics(t *testing.T) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := w.metrics.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		sum, ok := m.Data.(metricdata.Sum[int64])
		if !ok {
			continue
		}
		for _, p := range sum.DataPoints {
			if route, ok := p.Attributes.Value("route"); ok && !aRoute.MatchString(route.AsString()) {
				t.Errorf("%s has route %q", m.Name, route.AsString())
			}
		}
	}
}
