package sync

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/sync/wire"
)

// The spans of the mesh:
//
//	check ◀─ link ─ publish usage ─ header ─▶ process usage, in each peer
//	request snapshot ─ header ─▶ process snapshot ◀─ link ─ answer snapshot ─ header ─▶ process usage
//
// A publication begins a trace of its own, because it carries the usage of many checks.
// Processing it is its child, in every region. Heartbeats have no spans: they go out all
// the time.

// maxLinks bounds the links of one span; what is beyond them is dropped.
const maxLinks = 32

// Our own attributes. The others are OpenTelemetry's for messaging.
const (
	attrSeq      = "regiond.seq"
	attrCounters = "regiond.counters"
	attrPeer     = "regiond.peer"
	attrBodySize = "messaging.message.body.size"
)

// start begins a span about a subject; nil when there is no tracer.
func (m *Mesh) start(ctx context.Context, kind trace.SpanKind, operation, subject string, links []trace.Link) trace.Span {
	if m.o.Tracer == nil {
		return nil
	}
	action := "send"
	if kind == trace.SpanKindConsumer {
		action = "process"
	}
	prefix := subject[:strings.LastIndexByte(subject, '.')+1]
	_, span := m.o.Tracer.Start(ctx, operation+" "+subject, trace.WithSpanKind(kind),
		trace.WithLinks(links[:min(len(links), maxLinks)]...),
		trace.WithAttributes(
			attribute.String("messaging.system", "nats"), // the conventions list no name for it
			attribute.String("messaging.operation.name", operation), attribute.String("messaging.operation.type", action),
			attribute.String("messaging.destination.name", subject), attribute.String("messaging.destination.template", prefix+"{region}"),
			attribute.String("messaging.client.id", m.peers.Self.Instance)))
	return span
}

// publication is the span of the next message of counters, when it carries the usage of
// sampled checks; else nil. It stays open while the bus takes nothing, so it shows how long
// the message was delayed.
func (m *Mesh) publication(groups []wire.Group) trace.Span {
	if m.o.Tracer == nil || m.outbox.span != nil {
		return m.outbox.span
	}
	checks := m.o.Counters.Checks()
	if len(checks) == 0 {
		return nil
	}
	links := make([]trace.Link, len(checks))
	for i, c := range checks {
		links[i].SpanContext = c
	}
	m.outbox.span = m.start(context.Background(), trace.SpanKindProducer, "publish", SubjectUsage+m.peers.Self.Region, links)
	m.outbox.span.SetAttributes(attribute.Int(attrCounters, countersIn(groups)))
	return m.outbox.span
}

// endSpan ends that span: the bus took the message, or never did.
func (b *outbox) endSpan(taken bool) {
	switch {
	case b.span == nil:
		return
	case taken:
		b.span.SetAttributes(attribute.Int64(attrSeq, int64(b.seq)), attribute.Int(attrBodySize, len(b.buf)))
	default:
		b.span.SetStatus(codes.Error, "the bus took nothing until this process ended")
	}
	b.span.End()
	b.span = nil
}

func countersIn(groups []wire.Group) int {
	n := 0
	for i := range groups {
		n += len(groups[i].IDs)
	}
	return n
}

// consumption is the span of a message whose header has the context of its author's span;
// nil for every other.
func (m *Mesh) consumption(msg Message) trace.Span {
	if m.o.Tracer == nil || len(msg.Header) == 0 {
		return nil
	}
	c := propagation.MapCarrier{}
	for _, f := range msg.Header { // servers before NATS 2.14 may change the case
		c[strings.ToLower(f.Name)] = f.Value
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), c)
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	span := m.start(ctx, trace.SpanKindConsumer, "process", msg.Subject, nil)
	span.SetAttributes(attribute.Int(attrBodySize, len(msg.Data)))
	return span
}

func concluded(span trace.Span, err error, kind string) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(attribute.String("error.type", kind))
	}
	span.End()
}

// header is the context of a span as a message carries it: nothing, and no allocation,
// unless the span is sampled. What does not fit a header is left out.
func header(span trace.Span) []Field {
	if span == nil || !span.SpanContext().IsSampled() {
		return nil
	}
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), span), c)
	var fields []Field
	for name, value := range c {
		if len(name)+len(value) <= MaxFieldBytes {
			fields = append(fields, Field{name, value})
		}
	}
	return fields
}
