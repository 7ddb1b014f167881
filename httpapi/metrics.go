package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// noEndpoint is the label of calls that matched nothing: the path itself is the
// caller's choice, and would make labels without bound.
const noEndpoint = "none"

// instruments count calls by endpoint and status. Every attribute set is made
// once, so that counting allocates nothing.
type instruments struct {
	requests metric.Int64Counter
	duration metric.Float64Histogram
	panics   metric.Int64Counter
	// Both are indexed by endpoint + 1; [0] is noEndpoint.
	counts []map[int][]metric.AddOption // by status, 0 for any other
	times  [][]metric.RecordOption
}

func newInstruments(m metric.Meter, endpoints []endpoint) (*instruments, error) {
	requests, err1 := m.Int64Counter("regiond.http.requests",
		metric.WithDescription("HTTP calls answered, by route and status."))
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
	in.addRoute(noEndpoint)
	for _, e := range endpoints {
		in.addRoute(e.method + " " + e.pattern)
	}
	return in, nil
}

func (in *instruments) addRoute(name string) {
	label := attribute.String("route", name)
	counts := map[int][]metric.AddOption{0: {metric.WithAttributes(label, attribute.String("status", "other"))}}
	// The statuses that this package writes.
	for _, s := range []int{200, 204, 400, 401, 403, 404, 405, 413, 415, 421, 422, 429, 500, 503} {
		counts[s] = []metric.AddOption{metric.WithAttributes(label, attribute.String("status", strconv.Itoa(s)))}
	}
	in.counts = append(in.counts, counts)
	in.times = append(in.times, []metric.RecordOption{metric.WithAttributes(label)})
}

func (in *instruments) record(ctx context.Context, endpoint, status int, took time.Duration) {
	options, ok := in.counts[endpoint+1][status]
	if !ok {
		options = in.counts[endpoint+1][0]
	}
	in.requests.Add(ctx, 1, options...)
	in.duration.Record(ctx, took.Seconds(), in.times[endpoint+1]...)
}
