//go:build !race

// Under the race detector sync.Pool drops items at random, and so allocates at random.

package httpapi_test

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/regiond/regiond/httpapi"
)

// checkAllocations is what DESIGN.md and docs/observe.md promise for a check.
const checkAllocations = 5

// TestAllocations: a check stays within its budget, with a caller's trace context
// and without, and a tracer that samples nothing costs more.
func TestAllocations(t *testing.T) {
	allocations := func(tracing *httpapi.Tracing, header ...string) float64 {
		return testing.AllocsPerRun(200, checker(t, tracing, header...))
	}
	off, with := allocations(nil), allocations(nil, "traceparent: "+traceparent)
	never := allocations(&httpapi.Tracing{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test")})
	if off != with || off > checkAllocations || never <= off {
		t.Errorf("%v allocations, %v with a trace context, want at most %d; %v with a tracer, want more", off, with, checkAllocations, never)
	}
}
