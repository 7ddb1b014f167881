package sync_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// tracedNode is a process whose spans are kept. The sampled checks of what it
// publishes next are in waiting.
type tracedNode struct {
	*node
	spans   *tracetest.SpanRecorder
	waiting []trace.SpanContext
	header  map[string][]meshsync.Field // of the newest message that had one, by subject
	naked   int                         // messages without
}

func (w *world) joinTraced(region string, boot int64, sampler sdktrace.Sampler) *tracedNode {
	n := &tracedNode{node: w.newNode(region, "a", boot, 0), spans: tracetest.NewSpanRecorder(), header: map[string][]meshsync.Field{}}
	n.tracer = sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(n.spans)).Tracer("test")
	n.checks = func([]wire.Group) []trace.SpanContext {
		waiting := n.waiting
		n.waiting = nil
		return waiting
	}
	n.totals = newCounters(n.node)
	n.start(n.totals)
	n.bus.Spy(func(m meshsync.Message) {
		if m.Header == nil {
			n.naked++
			return
		}
		n.header[m.Subject] = m.Header
	})
	return n
}

// named returns the spans of that name that have ended.
func (n *tracedNode) named(name string) (found []sdktrace.ReadOnlySpan) {
	for _, s := range n.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	return found
}

func sampledCheck(n byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n}, TraceFlags: trace.FlagsSampled})
}

// TestPublicationIsFollowed: what carries sampled checks is linked to them and begins
// a trace, which its folding goes on in; what carries none has no header.
func TestPublicationIsFollowed(t *testing.T) {
	bubble(t, func(w *world) {
		eu, us := w.joinTraced("eu", 1, sdktrace.AlwaysSample()), w.joinTraced("us", 2, sdktrace.AlwaysSample())
		sleep(2 * time.Second)
		if len(eu.header[meshsync.SubjectHeartbeat+"eu"]) > 0 || len(eu.named("publish rl.v1.usage.eu")) > 0 {
			t.Errorf("beats or nothing at all are traced: %v", eu.header)
		}
		eu.waiting = []trace.SpanContext{sampledCheck(1), sampledCheck(2)}
		eu.totals.Admit(5, eu.cell(1))
		sleep(time.Second)
		published, folded := eu.named("publish rl.v1.usage.eu"), us.named("process rl.v1.usage.eu")
		if len(published) != 1 || len(published[0].Links()) != 2 || !published[0].Links()[1].SpanContext.Equal(sampledCheck(2)) {
			t.Fatalf("published %v", published)
		}
		if published[0].Parent().IsValid() || published[0].SpanKind() != trace.SpanKindProducer {
			t.Errorf("%v below %v", published[0].SpanKind(), published[0].Parent())
		}
		for _, f := range folded[len(folded)-1:] {
			if f.Parent().SpanID() != published[0].SpanContext().SpanID() || !f.Parent().IsRemote() || f.SpanKind() != trace.SpanKindConsumer {
				t.Errorf("folded below %v", f.Parent())
			}
		}
		naked := eu.naked
		eu.totals.Admit(5, eu.cell(1))
		sleep(time.Second)
		if len(eu.named("publish rl.v1.usage.eu")) != 1 || eu.naked == naked {
			t.Error("a change of no sampled check is traced")
		}
	}, "eu", "us")
}

// TestUnsampledSaysNothing: context that nobody keeps is not sent.
func TestUnsampledSaysNothing(t *testing.T) {
	bubble(t, func(w *world) {
		eu := w.joinTraced("eu", 1, sdktrace.NeverSample())
		w.joinTraced("us", 2, sdktrace.AlwaysSample())
		eu.waiting = []trace.SpanContext{sampledCheck(1)}
		eu.totals.Admit(5, eu.cell(1))
		sleep(2 * time.Second)
		if len(eu.header) > 0 || eu.naked == 0 {
			t.Errorf("%d messages without a header, with one: %v", eu.naked, eu.header)
		}
	}, "eu", "us")
}

// TestPublicationWaitsForTheBus: a message that the bus does not take is one span, as
// long as peers were not told.
func TestPublicationWaitsForTheBus(t *testing.T) {
	bubble(t, func(w *world) {
		eu, us := w.joinTraced("eu", 1, sdktrace.AlwaysSample()), w.joinTraced("us", 2, sdktrace.AlwaysSample())
		sleep(2 * time.Second)
		eu.bus.Refuse(meshsync.SubjectUsage)
		eu.waiting = []trace.SpanContext{sampledCheck(1)}
		eu.totals.Admit(5, eu.cell(1))
		sleep(time.Second)
		if got := eu.named("publish rl.v1.usage.eu"); len(got) != 0 {
			t.Errorf("ended although the bus took nothing: %v", got)
		}
		eu.bus.Refuse("")
		sleep(time.Second)
		got := eu.named("publish rl.v1.usage.eu")
		if len(got) != 1 || got[0].EndTime().Sub(got[0].StartTime()) < 900*time.Millisecond {
			t.Fatalf("published %v", got)
		}
		followed := slices.ContainsFunc(us.named("process rl.v1.usage.eu"), func(s sdktrace.ReadOnlySpan) bool {
			return s.Parent().SpanID() == got[0].SpanContext().SpanID()
		})
		if got[0].Status().Code != codes.Unset || !followed {
			t.Errorf("status %v, folded below it: %v", got[0].Status(), followed)
		}
	}, "eu", "us")
}

// TestLeavingEndsSpans: nothing stays open for ever when the bus never comes back.
func TestLeavingEndsSpans(t *testing.T) {
	bubble(t, func(w *world) {
		eu := w.joinTraced("eu", 1, sdktrace.AlwaysSample())
		sleep(time.Second)
		eu.bus.Refuse(meshsync.SubjectUsage)
		eu.waiting = []trace.SpanContext{sampledCheck(1)}
		eu.totals.Admit(5, eu.cell(1))
		sleep(time.Second)
		eu.stop()
		got := eu.named("publish rl.v1.usage.eu")
		if len(got) != 1 || got[0].Status().Code != codes.Error {
			t.Errorf("published %v", got)
		}
	}, "eu", "us")
}

// TestHeadersOfOthers: the case of names does not matter, and what is no context
// changes nothing but that there is no span.
func TestHeadersOfOthers(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, row := range []struct {
		header []meshsync.Field
		traced bool
	}{
		{[]meshsync.Field{{Name: "traceparent", Value: parent}}, true},
		{[]meshsync.Field{{Name: "Traceparent", Value: parent}, {Name: "TRACESTATE", Value: "v=1"}}, true},
		{[]meshsync.Field{{Name: "traceparent", Value: strings.ToUpper(parent)}}, false},
		{[]meshsync.Field{{Name: "traceparent", Value: "00-0-0-01"}}, false},
		{[]meshsync.Field{{Name: "xraceparent", Value: parent}}, false},
		{nil, false},
	} {
		bubble(t, func(w *world) {
			us := w.joinTraced("us", 2, sdktrace.AlwaysSample())
			stranger := w.net.Join("eu")
			data := wire.AppendUsage(nil, &wire.Usage{From: quota.Process{Region: "eu", Instance: "a", Boot: 1}, Seq: 1, TimeUS: us.timeUS()})
			if err := stranger.Publish(meshsync.SubjectUsage+"eu", data, row.header...); err != nil {
				t.Fatal(err)
			}
			sleep(time.Second)
			if got := us.named("process rl.v1.usage.eu"); len(got) > 0 != row.traced {
				t.Errorf("%v: spans %v", row.header, got)
			}
			if len(us.Peers()) != 1 {
				t.Errorf("%v: the message was not taken", row.header)
			}
		}, "eu", "us")
	}
}

// TestRefusedIsAnError: a message that changes nothing says why in its span.
func TestRefusedIsAnError(t *testing.T) {
	bubble(t, func(w *world) {
		us := w.joinTraced("us", 2, sdktrace.AlwaysSample())
		stranger := w.net.Join("eu")
		header := meshsync.Field{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
		if err := stranger.Publish(meshsync.SubjectUsage+"eu", []byte("nonsense"), header); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		got := us.named("process rl.v1.usage.eu")
		if len(got) != 1 || got[0].Status().Code != codes.Error {
			t.Errorf("spans %v", got)
		}
	}, "eu", "us")
}
