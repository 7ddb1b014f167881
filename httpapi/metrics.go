package httpapi

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// noRoute is the label of calls that matched nothing: the path itself is the
// caller's to choose, and would be a label without bound.
const noRoute = "none"

// instruments count calls by route and status. Every attribute set is made
// once, so that counting costs no allocation.
type instruments struct {
	requests metric.Int64Counter
	duration metric.Float64Histogram
	panics   metric.Int64Counter
	// Both are indexed by route + 1; [0] is noRoute.
	counts []map[int][]metric.AddOption
	times  [][]metric.RecordOption
}

// durationBuckets lie around the budgets: a memory answer, a Redis round trip,
// the Redis budget of 10 ms, the whole budget of 50 ms, and what must not be.
func durationBuckets() []float64 {
	return []float64{0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1}
}

// statuses are those that this package writes; any other counts as "other".
func statuses() []int {
	return []int{200, 204, 400, 401, 403, 404, 405, 413, 415, 422, 429, 500, 503}
}

func newInstruments(m metric.Meter, routes []route) (*instruments, error) {
	in := &instruments{}
	var err error
	in.requests, err = m.Int64Counter("regiond.http.requests",
		metric.WithDescription("HTTP calls answered, by route and status."))
	if err != nil {
		return nil, fmt.Errorf("create instrument regiond.http.requests: %w", err)
	}
	in.duration, err = m.Float64Histogram("regiond.http.duration", metric.WithUnit("s"),
		metric.WithDescription("From the first sight of an HTTP call to its answer."),
		metric.WithExplicitBucketBoundaries(durationBuckets()...))
	if err != nil {
		return nil, fmt.Errorf("create instrument regiond.http.duration: %w", err)
	}
	in.panics, err = m.Int64Counter("regiond.http.panics",
		metric.WithDescription("Defects that a handler survived; each is in the log with its stack."))
	if err != nil {
		return nil, fmt.Errorf("create instrument regiond.http.panics: %w", err)
	}
	in.panics.Add(context.Background(), 0) // there from the start, for rate()
	in.addRoute(noRoute)
	for i := range routes {
		in.addRoute(routes[i].method + " " + routes[i].pattern)
	}
	return in, nil
}

func (in *instruments) addRoute(name string) {
	label := attribute.String("route", name)
	counts := map[int][]metric.AddOption{
		0: {metric.WithAttributeSet(attribute.NewSet(label, attribute.String("status", "other")))},
	}
	for _, s := range statuses() {
		set := attribute.NewSet(label, attribute.String("status", strconv.Itoa(s)))
		counts[s] = []metric.AddOption{metric.WithAttributeSet(set)}
	}
	in.counts = append(in.counts, counts)
	in.times = append(in.times, []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(label))})
}

func (in *instruments) record(ctx context.Context, route, status int, took time.Duration) {
	options, ok := in.counts[route+1][status]
	if !ok {
		options = in.counts[route+1][0]
	}
	in.requests.Add(ctx, 1, options...)
	in.duration.Record(ctx, took.Seconds(), in.times[route+1]...)
}
