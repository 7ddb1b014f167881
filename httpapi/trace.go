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

// start begins a call's span and puts it into its context. The span is nil when
// it is not recorded; the context then still carries that decision.
func (t *Tracing) start(c *call) (context.Context, trace.Span) {
	ctx := c.Context
	if t == nil || c.endpoint == nil || c.endpoint.guard != guardData && !c.forwardAuth() {
		return ctx, nil
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("http.request.method", spanMethod(c.Method)),
			attribute.String("http.route", c.endpoint.pattern)),
	}
	if len(c.Header.Values("Traceparent")) == 1 { // several are none
		remote := propagation.TraceContext{}.Extract(ctx, carrier{c.Header})
		if !t.Distrust {
			ctx = remote
		} else if sc := trace.SpanContextFromContext(remote); sc.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: sc}))
		}
	}
	ctx, span := t.Tracer.Start(ctx, spanMethod(c.Method)+" "+c.endpoint.pattern, options...)
	if !span.IsRecording() {
		return ctx, nil
	}
	return ctx, span
}

// NewID returns a random id. It takes no lock and allocates nothing.
func NewID() (id quota.DecisionID) {
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

// decisionID returns the id of the call's trace, else a new one. While calls have no spans, the
// trace is that of the caller's context.
func (c *call) decisionID() quota.DecisionID {
	ctx := c.ctx
	if c.Tracing == nil && len(c.Header.Values("Traceparent")) == 1 {
		ctx = propagation.TraceContext{}.Extract(context.Background(), carrier{c.Header})
	}
	if id := trace.SpanContextFromContext(ctx).TraceID(); id.IsValid() {
		return quota.DecisionID(id)
	}
	return c.NewID()
}

// carrier reads the context of a caller's trace from its header.
type carrier struct{ Header }

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(name string) string {
	if lines := c.Values(name); len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier. Nothing is sent.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (carrier) Keys() []string { return nil }

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

// traceDecision adds a decision to the span, with the labels of its metrics.
// label replaces that of a decision that was not shed, unless it is "".
func (c *call) traceDecision(d *quota.Decision, label string) {
	if c.span == nil {
		return
	}
	if label == "" || d.Basis == quota.BasisShed {
		label = d.Label()
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
