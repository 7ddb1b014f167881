package grpcapi

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/quota"
)

// The methods, as metrics and spans name them. Kuadrant's service has the name of Envoy's in another package.
const (
	methodRateLimit = "RateLimitService/ShouldRateLimit"
	methodLook      = "RateLimitService/CheckRateLimit"
	methodReport    = "RateLimitService/Report"
	methodReserve   = "RateLimitService/Reserve"
	methodCommit    = "RateLimitService/Commit"
)

// call is one request under way.
type call struct {
	*Server
	ctx      context.Context
	method   string
	settings *Settings
	start    time.Time
	span     trace.Span // nil when it is not recorded
	trace    trace.TraceID
	id       quota.DecisionID // that of the trace, or a random one
	refused  bool             // by its answer
}

func (s *Server) begin(ctx context.Context, method string) *call {
	s.inFlight.Add(1)
	c := &call{Server: s, method: method, settings: s.Settings(), start: time.Now()}
	c.ctx, c.span, c.trace = s.Tracing.Start(ctx, header{ctx}, method,
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.method", method))
	if c.id = quota.DecisionID(c.trace); !c.trace.IsValid() {
		c.id = s.NewID()
	}
	return c
}

// inTime returns the context of a decision: it ends then, and before the caller's deadline does.
func inTime(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	if theirs, ok := ctx.Deadline(); ok && theirs.Add(-margin).Before(end) {
		return quota.WithCallersDeadline(ctx, theirs.Add(-margin))
	}
	within := quota.Within(ctx, end)
	return &within, func() {}
}

// end counts the call and ends its span.
func (c *call) end(err error) {
	c.inFlight.Add(-1)
	result := status.Code(err).String()
	if err == nil && c.refused {
		result = overLimit
	}
	c.metrics.record(c.ctx, c.method, result, c.start)
	if c.span == nil {
		return
	}
	c.span.SetAttributes(attribute.String("rpc.grpc.status_code", result))
	if code := status.Code(err); code == codes.Internal || code == codes.Unavailable {
		c.span.SetStatus(otelcodes.Error, code.String())
	}
	c.span.End()
}

// overLimit is what a refusal is counted as.
const overLimit = "OVER_LIMIT"

type metrics struct {
	requests *instruments.CounterOf[answered]
	ignored  *instruments.Counter
	duration metric.Float64Histogram
	times    map[string][]metric.RecordOption // of duration, by method
}

// answered is a call, and how it ended.
type answered struct{ method, code string }

func newMetrics(m metric.Meter) (*metrics, error) {
	i := instruments.On(m)
	times := map[string][]metric.RecordOption{}
	for _, method := range []string{methodRateLimit, methodCheck, methodLook, methodReport, methodReserve, methodCommit} {
		times[method] = []metric.RecordOption{instruments.Labels("method", method)}
	}
	return &metrics{
		times: times,
		requests: instruments.Of(i, "regiond.grpc.requests", "{request}",
			"gRPC calls answered, by method and code; OVER_LIMIT for a refusal.", func(a answered) attribute.Set {
				return attribute.NewSet(attribute.String("method", a.method), attribute.String("code", a.code))
			}),
		duration: i.Histogram("regiond.grpc.duration", "s", "From the arrival of a gRPC call to its answer.",
			0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1),
		ignored: i.Counter("regiond.rls.overrides.ignored", "{request}",
			"Requests with a limit of their own that did not count."),
	}, i.Err()
}

func (m *metrics) record(ctx context.Context, method, code string, start time.Time) {
	m.requests.Add(answered{method, code}, 1)
	m.duration.Record(ctx, time.Since(start).Seconds(), m.times[method]...)
}
