package redisstore

import (
	"context"
	"log/slog"
	"sync"
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

// tracedStore is a Store whose spans are kept.
type tracedStore struct {
	*Store
	tracer trace.Tracer
	spans  *tracetest.SpanRecorder
}

func newTracedStore(t *testing.T, addr string) *tracedStore {
	t.Helper()
	s := &tracedStore{spans: tracetest.NewSpanRecorder()}
	s.tracer = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())), sdktrace.WithSpanProcessor(s.spans)).Tracer("test")
	var err error
	s.Store, err = New(Options{
		Addrs: []string{addr}, Budget: 4 * time.Second, Logger: slog.New(slog.DiscardHandler), Tracer: s.tracer,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// check asks below a span of its own, which it returns.
func (s *tracedStore) check(tenant string) sdktrace.ReadOnlySpan {
	ctx, span := s.tracer.Start(context.Background(), "check")
	s.decide(ctx, tenant)
	span.End()
	return span.(sdktrace.ReadOnlySpan)
}

// decide asks, whatever comes of it.
func (s *tracedStore) decide(ctx context.Context, tenant string) {
	s.Decide(ctx, []store.Call{limitertest.OneCall(tenant, 1<<30, 1)}, make([]store.Verdict, 1))
}

// scripts returns the spans of script calls that have ended.
func (s *tracedStore) scripts() (found []sdktrace.ReadOnlySpan) {
	for _, span := range s.spans.Ended() {
		if span.Name() == "EVALSHA decide" {
			found = append(found, span)
		}
	}
	return found
}

// TestScriptSpan: a call that carries one request is its child.
func TestScriptSpan(t *testing.T) {
	s := newTracedStore(t, redisserver.Start(t, redisserver.Options{}).Addr())
	check := s.check("acme")
	s.decide(context.Background(), "acme") // not sampled: no span
	limitertest.Eventually(t, 20*time.Second, "the flusher ends its spans", func() bool { return len(s.scripts()) > 0 })
	got := s.scripts()
	if len(got) != 1 || got[0].Parent().SpanID() != check.SpanContext().SpanID() || got[0].SpanKind() != trace.SpanKindClient || len(got[0].Links()) > 0 {
		t.Errorf("script spans %v", got)
	}
	if len(check.Links()) > 0 || got[0].Status().Code != codes.Unset {
		t.Errorf("links %v, status %v", check.Links(), got[0].Status())
	}
}

// TestBatchSpan: a call that carries several checks begins a trace, is linked to each
// of them and each to it; every check has exactly one such call, or is the parent of one.
func TestBatchSpan(t *testing.T) {
	s := newTracedStore(t, redisserver.Start(t, redisserver.Options{}).Addr())
	checks := map[trace.SpanID]sdktrace.ReadOnlySpan{}
	batches := 0
	for deadline := time.Now().Add(20 * time.Second); batches == 0 && time.Now().Before(deadline); {
		var mu sync.Mutex
		var crowd sync.WaitGroup
		for range 32 {
			crowd.Go(func() {
				span := s.check("acme")
				mu.Lock()
				defer mu.Unlock()
				checks[span.SpanContext().SpanID()] = span
			})
		}
		crowd.Wait()
		for _, span := range s.scripts() {
			if len(span.Links()) > 1 {
				batches++
			}
		}
	}
	if batches == 0 {
		t.Fatal("checks that wait at once never travelled together")
	}
	carried := map[trace.SpanID]int{}
	limitertest.Eventually(t, 20*time.Second, "the flusher ends its spans", func() bool {
		clear(carried)
		for _, script := range s.scripts() {
			if script.Parent().IsValid() {
				carried[script.Parent().SpanID()]++
			}
			for _, link := range script.Links() {
				carried[link.SpanContext.SpanID()]++
			}
		}
		return len(carried) == len(checks)
	})
	for _, script := range s.scripts() {
		if script.Parent().IsValid() == (len(script.Links()) > 0) {
			t.Errorf("a call has a parent %v and %d links", script.Parent(), len(script.Links()))
		}
		for _, link := range script.Links() {
			back := checks[link.SpanContext.SpanID()].Links()
			if len(back) != 1 || !back[0].SpanContext.Equal(script.SpanContext()) {
				t.Errorf("a check is linked to %v, travelled in %v", back, script.SpanContext())
			}
		}
	}
	for id, n := range carried {
		if n != 1 {
			t.Errorf("check %v travelled %d times", id, n)
		}
	}
}

// TestScriptSpanOfError: the error of Redis is in the span.
func TestScriptSpanOfError(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s := newTracedStore(t, srv.Addr())
	srv.Kill()
	s.check("acme")
	limitertest.Eventually(t, 20*time.Second, "the flusher ends its spans", func() bool { return len(s.scripts()) > 0 })
	if got := s.scripts()[0]; got.Status().Code != codes.Error {
		t.Errorf("status %v", got.Status())
	}
}
