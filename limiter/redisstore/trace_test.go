package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// recorder returns a tracer and what it has recorded.
func recorder() (trace.Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())), sdktrace.WithSpanProcessor(spans)).Tracer("test"), spans
}

// TestScriptSpan: the call of a sampled request has a span below the request's, with what became of it.
func TestScriptSpan(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	tracer, spans := recorder()
	s := newStore(t, Options{Addrs: []string{srv.Addr()}, Budget: 4 * time.Second, Tracer: tracer})
	for _, want := range []codes.Code{codes.Unset, codes.Error} {
		spans.Reset()
		ctx, check := tracer.Start(context.Background(), "check")
		for _, ctx := range []context.Context{ctx, context.Background()} { // the second is not sampled
			s.Decide(ctx, []store.Call{limitertest.OneCall("acme", 5, 1)}, make([]store.Verdict, 1))
		}
		limitertest.Eventually(t, 20*time.Second, "the flusher ends its spans", func() bool { return len(spans.Ended()) > 0 })
		got := spans.Ended()
		if len(got) != 1 || got[0].Name() != "EVALSHA decide" || got[0].Parent().SpanID() != check.SpanContext().SpanID() ||
			got[0].SpanKind() != trace.SpanKindClient || len(got[0].Links()) > 0 || got[0].Status().Code != want {
			t.Errorf("spans %v, want one with status %v", got, want)
		}
		srv.Kill()
	}
}

// TestBatchSpan: a call that carries several checks begins a trace, and is linked to each that is sampled, and each to it.
func TestBatchSpan(t *testing.T) {
	tracer, _ := recorder()
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

// TestSpanOfError: the first error of a call is in its span.
func TestSpanOfError(t *testing.T) {
	tracer, _ := recorder()
	_, span := tracer.Start(context.Background(), "EVALSHA decide")
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
