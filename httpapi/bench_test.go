package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

// still is a Limiter that costs nothing.
type still struct {
	fake
	d quota.Decision
}

func (s *still) Decide(context.Context, []quota.Question) []quota.Outcome {
	return []quota.Outcome{{Decision: s.d}}
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

type rewound struct{ *strings.Reader }

func (rewound) Close() error { return nil }

// checker returns a func that serves one allowed check.
func checker(t testing.TB, tracing *httpapi.Tracing, header ...string) func() {
	t.Helper()
	const body = `{"tenant":"acme","dimensions":{"user":"42","ip":"192.0.2.1"},"cost":1}`
	o := options(&still{d: allowed(quota.Request{Tenant: "acme", Cost: 1})})
	o.Tracing = tracing
	h, r, src, w := data(t, o), request("POST", "/v1/check", body, header...), strings.NewReader(body), &discard{header: http.Header{}}
	r.Body = rewound{src}
	return func() {
		_, _ = src.Seek(0, io.SeekStart)
		h.ServeHTTP(w, r)
	}
}

func BenchmarkCheck(b *testing.B) {
	check := checker(b, nil, "Content-Type: application/json")
	b.ReportAllocs()
	for b.Loop() {
		check()
	}
}
