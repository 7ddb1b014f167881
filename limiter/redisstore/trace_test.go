package redisstore

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/test/redisserver"
)

// TestScriptSpan: the call of a sampled request has a span below the request's, with what became of it.
func TestScriptSpan(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	spans := tracetest.NewSpanRecorder()
	sampled := sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample()))
	tracer := sdktrace.NewTracerProvider(sampled, sdktrace.WithSpanProcessor(spans)).Tracer("test")
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
