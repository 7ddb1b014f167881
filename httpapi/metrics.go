package httpapi

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
)

// noEndpoint is the label of calls that matched nothing: the path itself is the
// caller's choice, and would make labels without bound.
const noEndpoint = "none"

// metrics count calls by endpoint and status. Every attribute set is made
// once, so that counting allocates nothing.
type metrics struct {
	requests *instruments.CounterOf[answered]
	duration metric.Float64Histogram
	panics   *instruments.Counter
	times    [][]metric.RecordOption // indexed by endpoint + 1; [0] is noEndpoint
}

// answered are the labels of an answer.
type answered struct{ endpoint, status int }

func newMetrics(m metric.Meter, endpoints []endpoint) (*metrics, error) {
	routes := []string{noEndpoint}
	for _, e := range endpoints {
		routes = append(routes, e.method+" "+e.pattern)
	}
	i := instruments.On(m)
	ms := &metrics{
		requests: instruments.Of(i, "regiond.http.requests", "",
			"HTTP calls answered, by route and status.", func(a answered) attribute.Set {
				status := "other"
				if a.status != 0 {
					status = strconv.Itoa(a.status)
				}
				return attribute.NewSet(attribute.String("route", routes[a.endpoint+1]), attribute.String("status", status))
			}),
		duration: i.Histogram("regiond.http.duration", "s", "From the arrival of an HTTP call to its answer.",
			// Around the budgets: an answer from memory, a Redis round trip, the Redis
			// budget of 10 ms, the whole budget of 50 ms, and what must not be.
			0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1),
		panics: i.Counter("regiond.http.panics", "", "Panics that a handler recovered from; each is in the log with its stack."),
	}
	for _, route := range routes {
		ms.times = append(ms.times, []metric.RecordOption{instruments.Labels("route", route)})
	}
	return ms, i.Err()
}

func (m *metrics) record(ctx context.Context, endpoint, status int, took time.Duration) {
	m.requests.Add(answered{endpoint, status}, 1)
	m.duration.Record(ctx, took.Seconds(), m.times[endpoint+1]...)
}
