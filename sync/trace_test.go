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
	n.checks = func() []trace.SpanContext {
		waiting := n.waiting
		n.waiting = nil
		return waiting
	}
	n.counters = newCounters(n.node)
	n.start(n.counters)
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

// A publication of sampled checks is linked to them and begins a trace, which goes on in its
// processing; any other has no header.
func TestPublicationSpan(t *testing.T) {
	bubble(t, func(w *world) {
		eu, us := w.joinTraced("eu", 1, sdktrace.AlwaysSample()), w.joinTraced("us", 2, sdktrace.AlwaysSample())
		sleep(2 * time.Second)
		if len(eu.header[meshsync.SubjectHeartbeat+"eu"]) > 0 || len(eu.named("publish rl.v1.usage.eu")) > 0 {
			t.Errorf("a heartbeat, or a publication of no check, is traced: %v", eu.header)
		}
		eu.waiting = []trace.SpanContext{sampledCheck(1), sampledCheck(2)}
		eu.counters.Admit(5, eu.cell(1))
		sleep(time.Second)
		published, processed := eu.named("publish rl.v1.usage.eu"), us.named("process rl.v1.usage.eu")
		if len(published) != 1 || len(published[0].Links()) != 2 || !published[0].Links()[1].SpanContext.Equal(sampledCheck(2)) {
			t.Fatalf("published %v", published)
		}
		if published[0].Parent().IsValid() || published[0].SpanKind() != trace.SpanKindProducer {
			t.Errorf("%v below %v", published[0].SpanKind(), published[0].Parent())
		}
		f := processed[len(processed)-1]
		if f.Parent().SpanID() != published[0].SpanContext().SpanID() || !f.Parent().IsRemote() || f.SpanKind() != trace.SpanKindConsumer {
			t.Errorf("processed below %v", f.Parent())
		}
		naked := eu.naked
		eu.counters.Admit(5, eu.cell(1))
		sleep(time.Second)
		if len(eu.named("publish rl.v1.usage.eu")) != 1 || eu.naked == naked {
			t.Error("a change of no sampled check is traced")
		}
	}, "eu", "us")
}

// A publication that the bus refuses is one span until it is accepted, or the process ends.
func TestRefusedPublicationSpan(t *testing.T) {
	bubble(t, func(w *world) {
		eu, us := w.joinTraced("eu", 1, sdktrace.AlwaysSample()), w.joinTraced("us", 2, sdktrace.AlwaysSample())
		sleep(2 * time.Second)
		eu.bus.Refuse(meshsync.SubjectUsage)
		eu.waiting = []trace.SpanContext{sampledCheck(1)}
		eu.counters.Admit(5, eu.cell(1))
		sleep(time.Second)
		if got := eu.named("publish rl.v1.usage.eu"); len(got) != 0 {
			t.Errorf("ended although the bus refused it: %v", got)
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
			t.Errorf("status %v, processed below it: %v", got[0].Status(), followed)
		}
		eu.bus.Refuse(meshsync.SubjectUsage)
		eu.waiting = []trace.SpanContext{sampledCheck(2)}
		eu.counters.Admit(6, eu.cell(1))
		sleep(time.Second)
		eu.stop()
		if got := eu.named("publish rl.v1.usage.eu"); len(got) != 2 || got[1].Status().Code != codes.Error {
			t.Errorf("published until the end %v", got)
		}
	}, "eu", "us")
}

// Any case of a header's name is read, and anything but a sampled context is ignored. A
// refused message has a span with an error.
func TestHeader(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, row := range []struct {
		header []meshsync.Field
		data   string // instead of a message
		traced bool
	}{
		{[]meshsync.Field{{Name: "traceparent", Value: parent}}, "", true},
		{[]meshsync.Field{{Name: "Traceparent", Value: parent}, {Name: "TRACESTATE", Value: "v=1"}}, "", true},
		{[]meshsync.Field{{Name: "traceparent", Value: strings.ToUpper(parent)}}, "", false},
		{[]meshsync.Field{{Name: "traceparent", Value: "00-0-0-01"}}, "", false},
		{[]meshsync.Field{{Name: "xraceparent", Value: parent}}, "", false},
		{nil, "", false},
		{[]meshsync.Field{{Name: "traceparent", Value: parent}}, "nonsense", true},
	} {
		bubble(t, func(w *world) {
			us := w.joinTraced("us", 2, sdktrace.AlwaysSample())
			data := wire.Append(nil, &wire.Usage{Head: wire.Head{From: quota.Process{Region: "eu", Instance: "a", Boot: 1}, Seq: 1}, Number: 1, TimeUS: us.timeUS()})
			data = secret(t).Sign(meshsync.SubjectUsage+"eu", data)
			status, peers := codes.Unset, 1
			if row.data != "" {
				data, status, peers = []byte(row.data), codes.Error, 0
			}
			if err := w.net.Join("eu").Publish(meshsync.SubjectUsage+"eu", data, row.header...); err != nil {
				t.Fatal(err)
			}
			sleep(time.Second)
			got := us.named("process rl.v1.usage.eu")
			if len(got) > 0 != row.traced || row.traced && got[0].Status().Code != status {
				t.Errorf("%v: spans %v", row.header, got)
			}
			if len(us.Peers()) != peers {
				t.Errorf("%v: %d peers", row.header, len(us.Peers()))
			}
		}, "eu", "us")
	}
}

// An unsampled span is not sent.
func TestUnsampled(t *testing.T) {
	bubble(t, func(w *world) {
		eu := w.joinTraced("eu", 1, sdktrace.NeverSample())
		eu.waiting = []trace.SpanContext{sampledCheck(1)}
		eu.counters.Admit(5, eu.cell(1))
		sleep(2 * time.Second)
		if len(eu.header) > 0 || eu.naked == 0 {
			t.Errorf("%d messages without a header, with one: %v", eu.naked, eu.header)
		}
	}, "eu", "us")
}
