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

// The spans of the mesh. Each begins where somebody can follow it from:
//
//	check ◀─ link ─ publish usage ─ header ─▶ process usage, in each peer
//	request snapshot ─ header ─▶ process snapshot ◀─ link ─ answer snapshot ─ header ─▶ process usage
//
// A publication begins a trace of its own, because it carries the usage of many
// checks. It is one message with one header, so its folding is its child, in every
// region. Heartbeats and the rolling snapshot are no spans: they are always there.

// maxLinks bounds the links of one span; what is beyond them is dropped.
const maxLinks = 32

// Words of OpenTelemetry's conventions for messaging. NATS is not in their list of
// systems, so it goes by its own name.
const (
	attrSystem      = "messaging.system"
	attrOperation   = "messaging.operation.name"
	attrType        = "messaging.operation.type"
	attrDestination = "messaging.destination.name"
	attrTemplate    = "messaging.destination.template"
	attrBodySize    = "messaging.message.body.size"
	attrClient      = "messaging.client.id"
	attrErrorType   = "error.type"
	attrSeq         = "regiond.seq"
	attrTotals      = "regiond.totals"
	attrPeer        = "regiond.peer"
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
			attribute.String(attrSystem, "nats"), attribute.String(attrOperation, operation), attribute.String(attrType, action),
			attribute.String(attrDestination, subject), attribute.String(attrTemplate, prefix+"{region}"),
			attribute.String(attrClient, m.o.Self.Instance)))
	return span
}

// publication is the span of the next message of counters, when it carries the usage
// of sampled checks; else nil. It stays open while the bus takes nothing, and so
// shows for how long the peers were not told.
func (m *Mesh) publication(groups []wire.Group) trace.Span {
	if m.o.Tracer == nil || m.o.Checks == nil || m.outbox.span != nil {
		return m.outbox.span
	}
	checks := m.o.Checks(groups)
	if len(checks) == 0 {
		return nil
	}
	links := make([]trace.Link, 0, len(checks))
	for _, c := range checks {
		links = append(links, trace.Link{SpanContext: c})
	}
	m.outbox.span = m.start(context.Background(), trace.SpanKindProducer, "publish", SubjectUsage+m.o.Self.Region, links)
	m.outbox.span.SetAttributes(attribute.Int(attrTotals, countersIn(groups)))
	return m.outbox.span
}

// published ends that span, once the bus took the message.
func (m *Mesh) published() {
	b := &m.outbox
	if b.span == nil {
		return
	}
	b.span.SetAttributes(attribute.Int64(attrSeq, int64(b.seq)), attribute.Int(attrBodySize, len(b.buf)))
	b.span.End()
	b.span = nil
}

// abandonSpan ends the span of a message that the bus never took.
func (b *outbox) abandonSpan() {
	if b.span == nil {
		return
	}
	b.span.SetStatus(codes.Error, "the bus took nothing until this process ended")
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

// consumption is the span of a message that came with the context of its author's;
// nil for every other.
func (m *Mesh) consumption(msg Message) trace.Span {
	if m.o.Tracer == nil || len(msg.Header) == 0 {
		return nil
	}
	c := carrier(msg.Header)
	ctx := propagation.TraceContext{}.Extract(context.Background(), &c)
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	span := m.start(ctx, trace.SpanKindConsumer, "process", msg.Subject, nil)
	span.SetAttributes(attribute.Int(attrBodySize, len(msg.Data)))
	return span
}

// concluded ends a span with what became of its message.
func concluded(span trace.Span, err error, kind string) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(attribute.String(attrErrorType, kind))
	}
	span.End()
}

// header is the context of a span as a message carries it: nothing, and no
// allocation, unless the span is sampled.
func header(span trace.Span) []Field {
	if span == nil || !span.SpanContext().IsSampled() {
		return nil
	}
	var c carrier
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), span), &c)
	return c
}

// carrier is a header as OpenTelemetry fills and reads it. Names are written as
// they are, in lower case, and read in any: servers before NATS 2.14 may change it.
type carrier []Field

// Get implements propagation.TextMapCarrier.
func (c *carrier) Get(name string) string {
	for _, f := range *c {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c *carrier) Set(name, value string) {
	if len(name)+len(value) <= MaxFieldBytes {
		*c = append(*c, Field{Name: name, Value: value})
	}
}

// Keys implements propagation.TextMapCarrier.
func (c *carrier) Keys() []string {
	names := make([]string, len(*c))
	for i, f := range *c {
		names[i] = f.Name
	}
	return names
}
