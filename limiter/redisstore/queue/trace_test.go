package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

func newTracer() trace.Tracer { return sdktrace.NewTracerProvider().Tracer("test") }

// TestBatchSpan: a call that carries several checks begins a trace, and is linked to each that is sampled, and each to it.
func TestBatchSpan(t *testing.T) {
	tracer := newTracer()
	s := newScriptSpans(tracer, "redis:6379")
	ctx := context.Background()
	_, one := tracer.Start(ctx, "check")
	_, two := tracer.Start(ctx, "check")
	_, span := s.start(ctx, &batch{parts: []part{{span: one}, {}, {span: two}}})
	script := span.(sdktrace.ReadOnlySpan)
	if script.Parent().IsValid() || len(script.Links()) != 2 {
		t.Errorf("it has the parent %v and the links %v", script.Parent(), script.Links())
	}
	for i, check := range []trace.Span{one, two} {
		back := check.(sdktrace.ReadOnlySpan).Links()
		if len(back) != 1 || !back[0].SpanContext.Equal(script.SpanContext()) || !script.Links()[i].SpanContext.Equal(check.SpanContext()) {
			t.Errorf("check %d is linked to %v", i, back)
		}
	}
	if _, span := s.start(ctx, &batch{parts: []part{{}, {}}}); span != nil {
		t.Error("a call of which nothing is sampled has a span")
	}
}

// redisReply is an error that came from Redis as a reply.
type redisReply string

func (r redisReply) Error() string { return string(r) }
func (redisReply) RedisError()     {}

// TestSpanOfError: the first error of a call is in its span.
func TestSpanOfError(t *testing.T) {
	_, span := newTracer().Start(context.Background(), "EVALSHA decide")
	refused := &store.Error{Reason: quota.ReasonRedisRefused, Err: redisReply("OOM command not allowed")}
	concluded(span, &batch{verdicts: []store.Verdict{{}, {Err: refused}, {Err: errors.New("another")}}})
	got := span.(sdktrace.ReadOnlySpan)
	want := []attribute.KeyValue{
		attribute.String("error.type", "redis_refused"), attribute.Bool("regiond.ambiguous", false), attribute.String("db.response.status_code", "OOM"),
	}
	if got.Status().Description != refused.Error() || fmt.Sprint(got.Attributes()) != fmt.Sprint(want) {
		t.Errorf("%v %v, want %v", got.Status(), got.Attributes(), want)
	}
}
