package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// outlet is the way of spans out of this process: bounded, and nobody's to wait for.
//
//	span ends ─ OnEnd ─▶ SDK's queue ─▶ ExportSpans ─▶ exporter ─▶ collector
//	              └ too many wait: dropped   └ refused, too late: dropped
//
// The SDK drops in silence, and writes a line for each batch that fails; here each
// span that is lost is counted and one line says when that begins and when it ends.
type outlet struct {
	sdktrace.SpanProcessor                       // the SDK's queue, behind which this is the exporter too
	exporter               sdktrace.SpanExporter // where to
	log                    *slog.Logger
	limit                  int64
	ended                  context.Context //nolint:containedctx // ends what is being sent when the process must go
	end                    context.CancelFunc

	waiting atomic.Int64 // spans that were let in and are not out yet
	lost    atomic.Int64 // ever
	failing atomic.Bool  // and the log says so
	counter metric.Int64Counter
	full    metric.AddOption
	refused metric.AddOption
}

func newOutlet(e sdktrace.SpanExporter, queue int, m metric.Meter, log *slog.Logger) (*outlet, error) {
	counter, err := m.Int64Counter("regiond.spans.dropped", metric.WithUnit("{span}"),
		metric.WithDescription("Spans that were sampled and never sent, by reason: queue is full, export failed."))
	if err != nil {
		return nil, fmt.Errorf("instrument of spans: %w", err)
	}
	o := &outlet{
		exporter: e, log: log, limit: int64(queue), counter: counter,
		full:    metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", "queue"))),
		refused: metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", "export"))),
	}
	for _, reason := range []metric.AddOption{o.full, o.refused} {
		counter.Add(context.Background(), 0, reason) // there from the start, for rate()
	}
	o.ended, o.end = context.WithCancel(context.Background())
	o.SpanProcessor = sdktrace.NewBatchSpanProcessor(behind{o}, sdktrace.WithMaxQueueSize(queue))
	return o, nil
}

// OnEnd implements sdktrace.SpanProcessor. It never waits.
func (o *outlet) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if o.waiting.Add(1) > o.limit {
		o.waiting.Add(-1)
		o.lose(1, o.full, "more spans wait than the queue holds")
		return
	}
	o.SpanProcessor.OnEnd(s)
}

// lose counts spans, and says so when it is the first time in a row.
func (o *outlet) lose(spans int, why metric.AddOption, text string) {
	o.lost.Add(int64(spans))
	o.counter.Add(context.Background(), int64(spans), why)
	if o.failing.CompareAndSwap(false, true) {
		o.log.Warn("spans are dropped until the collector takes them again; decisions go on as ever", "why", text)
	}
}

// Shutdown implements sdktrace.SpanProcessor: it sends what waits, for spanGrace at
// most, and then drops it.
func (o *outlet) Shutdown(ctx context.Context) error {
	before := o.lost.Load()
	stop := time.AfterFunc(spanGrace, o.end)
	defer stop.Stop()
	err := o.SpanProcessor.Shutdown(ctx)
	o.end()
	if lost := o.lost.Load() - before; lost > 0 {
		o.log.Warn("the last spans were not sent", "spans", lost)
	}
	return err
}

// spanGrace is how long a shutdown waits for the collector, well within
// shutdownTimeout.
const spanGrace = 3 * time.Second

// behind is the outlet as the queue sees it.
type behind struct{ *outlet }

// ExportSpans implements sdktrace.SpanExporter. It hides errors from the SDK, which
// would write a line for each.
func (b behind) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer b.waiting.Add(-int64(len(spans)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ended, cancel)()
	if err := b.exporter.ExportSpans(ctx, spans); err != nil {
		b.lose(len(spans), b.refused, err.Error())
		return nil
	}
	if b.failing.CompareAndSwap(true, false) {
		b.log.Info("the collector takes spans again", "dropped_so_far", b.lost.Load())
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (b behind) Shutdown(ctx context.Context) error { return b.exporter.Shutdown(ctx) }
