package httpapi

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
)

// Tracing is how calls of the data listener become spans. Admin calls, health
// checks among them, never do.
type Tracing struct {
	Tracer trace.Tracer // required
	// Distrust starts a new trace for each call, with a link to the caller's
	// context, instead of continuing that context. It is for a listener whose
	// callers forward what end users sent: they could have every call sampled.
	Distrust bool
	// Tenant is what spans show of a tenant's id; nil shows nothing.
	Tenant func(tenant string) string
}

// Start begins the span of a call, in the trace that the caller's header names or linked to it, and puts it into the
// context. The span is nil when it is not recorded; the context then still carries that decision. id is that of the trace,
// or zero. A nil Tracing begins no span, and id is that of the caller's trace.
func (t *Tracing) Start(ctx context.Context, caller lines, name string, attrs ...attribute.KeyValue) (
	in context.Context, span trace.Span, id trace.TraceID,
) {
	var remote trace.SpanContext
	if parent := caller.Values("Traceparent"); len(parent) == 1 { // several are none
		sent := propagation.MapCarrier{"traceparent": parent[0]}
		if state := caller.Values("Tracestate"); len(state) > 0 {
			sent["tracestate"] = state[0]
		}
		remote = trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, sent))
	}
	if t == nil {
		return ctx, nil, remote.TraceID()
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(slices.Clone(attrs)...)}
	switch {
	case !remote.IsValid():
	case t.Distrust:
		options = append(options, trace.WithLinks(trace.Link{SpanContext: remote}))
	default:
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
	}
	ctx, span = t.Tracer.Start(ctx, name, options...)
	if id = span.SpanContext().TraceID(); !span.IsRecording() {
		span = nil
	}
	return ctx, span, id
}

// startSpan begins the span of a call of the data listener.
func (c *call) startSpan() {
	t, name := c.Tracing, ""
	if t != nil && (c.endpoint == nil || c.endpoint.guard != guardData && !c.forwardAuth()) {
		t = nil
	}
	if t != nil {
		name = spanMethod(c.Method) + " " + c.endpoint.pattern
	}
	c.ctx, c.span, c.trace = t.Start(c.Context, c.Header, name,
		attribute.String("http.request.method", spanMethod(c.Method)), attribute.String("http.route", c.pattern()))
}

// NewID returns a random id. It takes no lock and allocates nothing.
func NewID() (id quota.DecisionID) {
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

// decisionID returns the id of the call's trace, else a new one. While calls have no spans, the trace is the caller's.
func (c *call) decisionID() quota.DecisionID {
	if c.trace.IsValid() {
		return quota.DecisionID(c.trace)
	}
	return c.NewID()
}

// lines are those of a caller's header.
type lines interface{ Values(name string) []string }

// spanMethod is the name of a method in a span: on forward-auth the end user chooses
// the method, so only the known ones count.
func spanMethod(m string) string {
	if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}, m) {
		return m
	}
	return "_OTHER"
}

// endSpan ends the span with the answer's status. A denial is no error.
func (c *call) endSpan(panicked bool) {
	if c.span == nil {
		return
	}
	if c.Status != 0 {
		c.span.SetAttributes(attribute.Int("http.response.status_code", c.Status))
	}
	switch {
	case panicked:
		c.span.SetStatus(codes.Error, "panic; its stack is in the log")
	case c.Status >= http.StatusInternalServerError:
		c.span.SetStatus(codes.Error, http.StatusText(c.Status))
	}
	c.span.End()
}

// traceDecision adds a decision to the span, with the labels of its metrics; report is whether it is of one.
func (c *call) traceDecision(d *quota.Decision, report bool) {
	if c.span == nil {
		return
	}
	label := d.Label()
	switch {
	case d.Basis == quota.BasisShed:
	case report:
		label = "reported"
	case d.Settlement != nil:
		label = "settled"
	}
	attrs := []attribute.KeyValue{
		attribute.String("regiond.policy", d.Policy), attribute.String("regiond.decision", label),
		attribute.String("regiond.basis", d.Basis.String()), attribute.String("regiond.mode", d.Mode.String()),
		attribute.Int64("regiond.cost", d.Cost),
	}
	if d.Reason != quota.ReasonNone {
		attrs = append(attrs, attribute.String("regiond.reason", d.Reason.String()))
	}
	if i := d.Headline(); i >= 0 {
		attrs = append(attrs, attribute.String("regiond.limit", d.Limits[i].Limit.Name), attribute.Int64("regiond.remaining", d.Limits[i].Remaining))
	}
	if violated := d.Violated(); len(violated) > 0 {
		attrs = append(attrs, attribute.StringSlice("regiond.violated", violated))
	}
	if d.Replayed {
		attrs = append(attrs, attribute.Bool("regiond.replayed", true))
	}
	if c.Tracing.Tenant != nil {
		attrs = append(attrs, attribute.String("regiond.tenant", c.Tracing.Tenant(d.Tenant)))
	}
	c.span.SetAttributes(attrs...)
}

// traceBatch adds the sums of a batch, which has one span for all its checks.
func (c *call) traceBatch(checks int, outcomes []quota.Outcome) {
	if c.span == nil {
		return
	}
	count := map[string]int{}
	for i := range outcomes {
		if outcomes[i].Err == nil {
			count[outcomes[i].Decision.Label()]++
		}
	}
	c.span.SetAttributes(attribute.Int("regiond.checks", checks),
		attribute.Int("regiond.denied", count["denied"]), attribute.Int("regiond.shed", count["shed"]))
}
