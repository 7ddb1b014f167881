package queue

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/limiter/store"
)

// scriptName is what the deciding script is called in spans; its SHA-1, which
// changes with each release, would be useless in a search.
const scriptName = "decide"

// scriptSpans makes the spans of script calls. A call that carries one request is
// its child:
//
//	check ── EVALSHA decide
//
// One that carries several has many parents, and so none. It begins a trace of its
// own, with a link to each sampled check, and each has a link to it:
//
//	check ◀─ links ─▶ EVALSHA decide ◀─ links ─▶ check
//
// A nil *scriptSpans makes none.
type scriptSpans struct {
	tracer trace.Tracer
	common []attribute.KeyValue
}

func newScriptSpans(t trace.Tracer, addr string) *scriptSpans {
	if t == nil {
		return nil
	}
	common := []attribute.KeyValue{
		attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", "EVALSHA"),
		attribute.String("db.stored_procedure.name", scriptName),
	}
	host, port, err := net.SplitHostPort(addr)
	if n, err2 := strconv.Atoi(port); errors.Join(err, err2) == nil {
		common = append(common, attribute.String("server.address", host), attribute.Int("server.port", n))
	}
	return &scriptSpans{tracer: t, common: common}
}

// of is the span of a request, when it is sampled; else nil.
func (s *scriptSpans) of(ctx context.Context) trace.Span {
	if s == nil {
		return nil
	}
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsSampled() {
		return nil
	}
	return span
}

// start begins the span of the call of a batch, and puts it into ctx; nil when none of its
// jobs is sampled.
func (s *scriptSpans) start(ctx context.Context, b *batch) (context.Context, trace.Span) {
	if s == nil {
		return ctx, nil
	}
	var links []trace.Link
	for _, p := range b.parts {
		if p.span != nil {
			links = append(links, trace.Link{SpanContext: p.span.SpanContext()})
		}
	}
	if len(links) == 0 {
		return ctx, nil
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(s.common...),
		trace.WithAttributes(attribute.Int("regiond.checks", len(b.calls))),
	}
	name := "EVALSHA " + scriptName
	if len(b.parts) == 1 {
		return s.tracer.Start(trace.ContextWithSpan(ctx, b.parts[0].span), name, options...)
	}
	ctx, span := s.tracer.Start(ctx, name, append(options, trace.WithLinks(links...))...)
	for _, p := range b.parts {
		if p.span != nil {
			p.span.AddLink(trace.Link{SpanContext: span.SpanContext()})
		}
	}
	return ctx, span
}

// concluded notes the first error of a call's checks.
func concluded(span trace.Span, b *batch) {
	i := slices.IndexFunc(b.verdicts, func(v store.Verdict) bool { return v.Err != nil })
	if i < 0 {
		return
	}
	err := b.verdicts[i].Err
	span.SetStatus(codes.Error, err.Error())
	if e := (*store.Error)(nil); errors.As(err, &e) {
		span.SetAttributes(attribute.String("error.type", e.Reason.String()), attribute.Bool("regiond.ambiguous", e.Ambiguous))
	}
	if reply := redis.Error(nil); errors.As(err, &reply) {
		code, _, _ := strings.Cut(reply.Error(), " ")
		span.SetAttributes(attribute.String("db.response.status_code", code))
	}
}
