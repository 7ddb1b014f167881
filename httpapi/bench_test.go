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

func (s *still) Check(context.Context, quota.Request) (quota.Decision, error) { return s.d, nil }

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

type rewound struct{ *strings.Reader }

func (rewound) Close() error { return nil }

func BenchmarkCheck(b *testing.B) {
	const body = `{"tenant":"acme","dimensions":{"user":"42","ip":"192.0.2.1"},"cost":1}`
	l := &still{d: allowed(quota.Request{Tenant: "acme", Cost: 1})}
	h := data(b, options(l))
	r := request("POST", "/v1/check", body, "Content-Type: application/json")
	src := strings.NewReader(body)
	r.Body = rewound{src}
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := src.Seek(0, io.SeekStart); err != nil {
			b.Fatal(err)
		}
		h.ServeHTTP(w, r)
	}
}

func BenchmarkAuthz(b *testing.B) {
	l := &still{d: allowed(quota.Request{Tenant: "acme", Cost: 1})}
	o := options(l)
	o.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth()})
	h := data(b, o)
	r := request("GET", "/v1/authz/search/x", "", "X-Tenant: acme", "X-User: 42")
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
