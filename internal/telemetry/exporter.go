package telemetry

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/base/loglimit"
)

// boundedExporter is the SDK's batch processor with a count of what it loses:
//
//	span ends ─ OnEnd ─▶ SDK's queue ─▶ ExportSpans ─▶ exporter ─▶ collector
//	              └ queue is full: dropped  └ refused, timed out: dropped
//
// The SDK drops without a word and logs each batch that fails. Here each lost span is
// counted, and one line says when losses begin and one when they end.
type boundedExporter struct {
	sdktrace.SpanProcessor // the SDK's queue; it exports through countedExporter
	log                    *slog.Logger
	limit                  int64
	cancelled              context.Context //nolint:containedctx // cancels an export when the process must go
	cancel                 context.CancelFunc

	queued  atomic.Int64 // spans accepted and not exported yet
	lost    atomic.Int64 // ever
	failing loglimit.Fault
	dropped *instruments.Counter
}

func newBoundedExporter(e sdktrace.SpanExporter, m metric.Meter, log *slog.Logger) (*boundedExporter, error) {
	i := instruments.On(m)
	dropped := i.CounterBy("regiond.spans.dropped", "{span}",
		"Spans that were sampled and never sent, by reason: queue is full, export failed.",
		"reason", "queue", "export")
	limit, err := strconv.ParseInt(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE"), 10, 64)
	if err != nil || limit < 1 {
		limit = sdktrace.DefaultMaxQueueSize // as the SDK does
	}
	b := &boundedExporter{log: log, limit: limit, dropped: dropped}
	b.cancelled, b.cancel = context.WithCancel(context.Background())
	b.SpanProcessor = sdktrace.NewBatchSpanProcessor(countedExporter{b, e}, sdktrace.WithMaxQueueSize(int(limit)))
	return b, i.Err()
}

// OnEnd implements sdktrace.SpanProcessor. It never waits.
func (b *boundedExporter) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if b.queued.Add(1) > b.limit {
		b.queued.Add(-1)
		b.drop(1, "queue", "the queue is full")
		return
	}
	b.SpanProcessor.OnEnd(s)
}

func (b *boundedExporter) drop(spans int, reason, detail string) {
	b.lost.Add(int64(spans))
	b.dropped.Add(int64(spans), "reason", reason)
	if b.failing.Begins() {
		b.log.Warn("spans are dropped until the collector accepts them again; decisions are not affected", "why", detail)
	}
}

// spanTimeout is how long a shutdown waits for the collector, well within
// shutdownTimeout.
const spanTimeout = 3 * time.Second

// Shutdown implements sdktrace.SpanProcessor: it exports what is queued within
// spanTimeout and drops the rest.
func (b *boundedExporter) Shutdown(ctx context.Context) error {
	before := b.lost.Load()
	timeout := time.AfterFunc(spanTimeout, b.cancel)
	defer timeout.Stop()
	err := b.SpanProcessor.Shutdown(ctx)
	b.cancel()
	if lost := b.lost.Load() - before; lost > 0 {
		b.log.Warn("the last spans were not sent", "spans", lost)
	}
	return err
}

// countedExporter is what the SDK's queue exports through.
type countedExporter struct {
	b *boundedExporter
	sdktrace.SpanExporter
}

// ExportSpans implements sdktrace.SpanExporter. It keeps errors from the SDK, which
// would log each, through a handler that all daemons of a process share.
func (c countedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer c.b.queued.Add(-int64(len(spans)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.b.cancelled, cancel)()
	if err := c.SpanExporter.ExportSpans(ctx, spans); err != nil {
		c.b.drop(len(spans), "export", err.Error())
		return nil
	}
	if c.b.failing.Ends() {
		c.b.log.Info("the collector accepts spans again", "dropped_so_far", c.b.lost.Load())
	}
	return nil
}
