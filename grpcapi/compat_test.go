package grpcapi_test

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const compatFile = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}
  - key: plan
    value: free
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 100}
`

// overHTTP asks what a server of that world answers over HTTP.
func (w *world) overHTTP(method, path, body string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.server.Compat(slog.New(slog.DiscardHandler), nil).Handler.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
	return rec
}

// TestJSONAsGRPC: /json gives the answers of gRPC, refusals as 429.
func TestJSONAsGRPC(t *testing.T) {
	t.Parallel()
	one, two := serve(t, compatFile, nil), serve(t, compatFile, nil)
	for i, user := range []string{"a", "a", "b", "a", "a", "b"} {
		r := &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{descriptor("user=" + user)}}
		want, err := one.client.ShouldRateLimit(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := protojson.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		rec := two.overHTTP([]string{"POST", "GET", "PUT"}[i%3], "/json", string(body))
		var got ratelimit.RateLimitResponse
		if err := protojson.Unmarshal(rec.Body.Bytes(), &got); err != nil {
			t.Fatalf("%d: %v: %s", i, err, rec.Body)
		}
		code := http.StatusOK
		if want.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT {
			code = http.StatusTooManyRequests
		}
		if rec.Code != code || !proto.Equal(&got, want) {
			t.Errorf("%d: %d %v\nwant %d %v", i, rec.Code, &got, code, want)
		}
		if refused := i == 4; refused != (code == http.StatusTooManyRequests) {
			t.Errorf("%d: refused: %t", i, !refused)
		}
	}
}

// TestCompatRebinding: on loopback, a web page whose own name resolves to there gets nothing but the health.
func TestCompatRebinding(t *testing.T) {
	t.Parallel()
	w := serve(t, compatFile, nil)
	const request = `{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}`
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		s := w.server.Compat(slog.New(slog.DiscardHandler), nil)
		go func() { _ = s.Serve(l) }() // until Close
		t.Cleanup(func() { _ = s.Close() })
		_, port, _ := net.SplitHostPort(l.Addr().String())
		for host, own := range map[string]bool{
			"evil.example": false, "evil.example:" + port: false, "localhost:" + port: true, "127.0.0.1:" + port: true,
		} {
			own = own || address == "0.0.0.0:0" // whoever listens on all addresses may have any name
			for path, reachable := range map[string]bool{"/json": own, "/rlconfig": own, "/healthcheck": true} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:"+port+path, strings.NewReader(request))
				if err != nil {
					t.Fatal(err)
				}
				r.Host = host
				a, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = a.Body.Close()
				if (a.StatusCode != http.StatusMisdirectedRequest) != reachable {
					t.Errorf("%s of %s under %s: %s", path, address, host, a.Status)
				}
			}
		}
	}
}

// TestCompatPages: what else their image answers, and what is wrong with a request.
func TestCompatPages(t *testing.T) {
	t.Parallel()
	w := serve(t, compatFile, nil)
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/healthcheck", "", 200, "OK"},
		{"GET", "/rlconfig", "", 200, "edge.user: unit=MINUTE requests_per_unit=3, shadow_mode: false, quota_mode: false\n" +
			"edge.plan_free: unit=HOUR requests_per_unit=100, shadow_mode: true, quota_mode: false\n"},
		{"POST", "/json", "{", 400, "the body is no RateLimitRequest: "},
		{"POST", "/json", `{"domain": "edge", "descriptor": []}`, 400, "the body is no RateLimitRequest: "},
		{"POST", "/json", `{"descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}`, 400, "the request has no domain"},
		{"POST", "/json", `{"domain": "edge"}`, 400, "the request has no descriptors"},
		{"POST", "/json", `{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "` + strings.Repeat("a", 70_000) + `"}]}]}`, 429, "{"},
		{"GET", "/", "", 404, "404 page not found"},
	} {
		rec := w.overHTTP(c.method, c.path, c.body)
		if rec.Code != c.code || !strings.HasPrefix(rec.Body.String(), c.want) {
			t.Errorf("%s %s %.40q: %d %q, want %d %q", c.method, c.path, c.body, rec.Code, rec.Body, c.code, c.want)
		}
	}
}
