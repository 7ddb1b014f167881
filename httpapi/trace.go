package httpapi

import (
	"context"
	"errors"
	"net/http"

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
	// Distrust begins a trace for each call, with a link to the context that came with
	// it, in place of continuing that context's. It is for a listener whose callers
	// pass on what end users sent: they could have every call sampled.
	Distrust bool
	// Tenant is what spans show of a tenant's id; nil shows nothing.
	Tenant func(tenant string) string
}

func (t *Tracing) validate() error {
	if t != nil && t.Tracer == nil {
		return errors.New("httpapi: Options.Tracing has no Tracer")
	}
	return nil
}

// start begins a call's span and puts it into its context. The span is nil when it
// is not recorded; the context then still says so to whoever is asked next.
func (t *Tracing) start(c *call) (context.Context, trace.Span) {
	ctx := c.r.Context()
	if t == nil || c.route == nil || !c.route.guard.traced() {
		return ctx, nil
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("http.request.method", method(c.r.Method)),
			attribute.String("http.route", c.route.pattern)),
	}
	if len(c.r.Header["Traceparent"]) > 0 {
		told := propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(c.r.Header))
		if !t.Distrust {
			ctx = told
		} else if sc := trace.SpanContextFromContext(told); sc.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: sc}))
		}
	}
	ctx, span := t.Tracer.Start(ctx, method(c.r.Method)+" "+c.route.pattern, options...)
	if !span.IsRecording() {
		return ctx, nil
	}
	return ctx, span
}

// method is a method that a span may be named by: on forward-auth it is the end
// user's to choose.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return m
	}
	return "_OTHER"
}

// endSpan ends the span with the answer's status. A denial is no error: the
// service did what it is for.
func (c *call) endSpan(panicked bool) {
	if c.span == nil {
		return
	}
	if c.status != 0 {
		c.span.SetAttributes(attribute.Int("http.response.status_code", c.status))
	}
	switch {
	case panicked:
		c.span.SetStatus(codes.Error, "a defect; its stack is in the log")
	case c.status >= http.StatusInternalServerError:
		c.span.SetStatus(codes.Error, http.StatusText(c.status))
	}
	c.span.End()
}

// traceDecision notes a decision, in the words of its metrics. word replaces
// allowed and denied.
func (c *call) traceDecision(d *quota.Decision, word string) {
	if c.span == nil {
		return
	}
	if word == "" {
		word = outcomeWord(d)
	}
	c.span.SetAttributes(
		attribute.String("regiond.policy", d.Policy), attribute.String("regiond.decision", word),
		attribute.String("regiond.basis", d.Basis.String()), attribute.String("regiond.mode", d.Mode.String()),
		attribute.Int64("regiond.cost", d.Cost))
	if d.Reason != quota.ReasonNone {
		c.span.SetAttributes(attribute.String("regiond.reason", d.Reason.String()))
	}
	if i := d.Headline(); i >= 0 {
		c.span.SetAttributes(
			attribute.String("regiond.limit", d.Limits[i].Limit.Name), attribute.Int64("regiond.remaining", d.Limits[i].Remaining))
	}
	if violated := d.Violated(); len(violated) > 0 {
		c.span.SetAttributes(attribute.StringSlice("regiond.violated", violated))
	}
	if d.Replayed {
		c.span.SetAttributes(attribute.Bool("regiond.replayed", true))
	}
	if c.Tracing.Tenant != nil {
		c.span.SetAttributes(attribute.String("regiond.tenant", c.Tracing.Tenant(d.Tenant)))
	}
}

func outcomeWord(d *quota.Decision) string {
	switch {
	case d.WouldDeny:
		return "would_deny"
	case d.Allowed:
		return "allowed"
	}
	return "denied"
}

// traceBatch notes what a batch came to: one span is for all of it.
func (c *call) traceBatch(items []item, outcomes []quota.Outcome) {
	if c.span == nil {
		return
	}
	denied := 0
	for i := range outcomes {
		if outcomes[i].Err == nil && !outcomes[i].Decision.Allowed {
			denied++
		}
	}
	c.span.SetAttributes(attribute.Int("regiond.checks", len(items)), attribute.Int("regiond.denied", denied))
}
