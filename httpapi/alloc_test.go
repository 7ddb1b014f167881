//go:build !race

// Under the race detector sync.Pool loses things at random, and so allocates at random.

package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

// checkAllocations is what DESIGN.md and docs/tracing.md promise for a check.
const checkAllocations = 5

// TestAllocations: a check stays within its budget, with a caller's trace context
// and without, and a tracer that samples nothing costs more.
func TestAllocations(t *testing.T) {
	const body = `{"tenant":"acme","dimensions":{"user":"42","ip":"192.0.2.1"},"cost":1}`
	allocations := func(tracing *httpapi.Tracing, header ...string) float64 {
		o := options(&still{d: allowed(quota.Request{Tenant: "acme", Cost: 1})})
		o.Tracing = tracing
		h, r, src, w := data(t, o), request("POST", "/v1/check", body, header...), strings.NewReader(body), &discard{header: http.Header{}}
		r.Body = rewound{src}
		return testing.AllocsPerRun(200, func() {
			_, _ = src.Seek(0, io.SeekStart)
			h.ServeHTTP(w, r)
		})
	}
	off, with := allocations(nil), allocations(nil, "traceparent: "+traceparent)
	never := allocations(&httpapi.Tracing{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test")})
	if off != with || off > checkAllocations {
		t.Errorf("off: %v allocations, %v with a context in the header; want %d at most", off, with, checkAllocations)
	}
	if never <= off {
		t.Errorf("a tracer allocates nothing (%v, without one %v): this test measures nothing", never, off)
	}
}
