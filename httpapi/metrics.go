package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/counting"
)

// noEndpoint is the label of calls that matched nothing: the path itself is the
// caller's choice, and would make labels without bound.
const noEndpoint = "none"

// instruments count calls by endpoint and status. Every attribute set is made
// once, so that counting allocates nothing.
type instruments struct {
	requests *counting.Counter[answered]
	duration metric.Float64Histogram
	panics   metric.Int64Counter
	times    [][]metric.RecordOption // indexed by endpoint + 1; [0] is noEndpoint
}

// answered are the labels of an answer.
type answered struct{ endpoint, status int }

func newInstruments(m metric.Meter, endpoints []endpoint) (*instruments, error) {
	routes := []string{noEndpoint}
	for _, e := range endpoints {
		routes = append(routes, e.method+" "+e.pattern)
	}
	requests, err1 := counting.New(m, "regiond.http.requests", "", "HTTP calls answered, by route and status.", func(a answered) attribute.Set {
		status := "other"
		if a.status != 0 {
			status = strconv.Itoa(a.status)
		}
		return attribute.NewSet(attribute.String("route", routes[a.endpoint+1]), attribute.String("status", status))
	})
	duration, err2 := m.Float64Histogram("regiond.http.duration", metric.WithUnit("s"),
		metric.WithDescription("From the arrival of an HTTP call to its answer."),
		// Around the budgets: an answer from memory, a Redis round trip, the Redis
		// budget of 10 ms, the whole budget of 50 ms, and what must not be.
		metric.WithExplicitBucketBoundaries(0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1))
	panics, err3 := m.Int64Counter("regiond.http.panics",
		metric.WithDescription("Panics that a handler recovered from; each is in the log with its stack."))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("create the instruments of httpapi: %w", err)
	}
	panics.Add(context.Background(), 0) // present from the start, for rate()
	in := &instruments{requests: requests, duration: duration, panics: panics}
	for _, route := range routes {
		in.times = append(in.times, []metric.RecordOption{metric.WithAttributes(attribute.String("route", route))})
	}
	return in, nil
}

func (in *instruments) record(ctx context.Context, endpoint, status int, took time.Duration) {
	in.requests.Add(answered{endpoint, status}, 1)
	in.duration.Record(ctx, took.Seconds(), in.times[endpoint+1]...)
}
