package natsbus

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// inboxBubble runs f with a running inbox in fake time, and returns what it dropped.
func inboxBubble(t *testing.T, f func(*inbox)) (dropped int64) {
	t.Helper()
	reader := metric.NewManualReader()
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(metric.NewMeterProvider(metric.WithReader(reader)).Meter("bus"))
		if err != nil {
			t.Fatal(err)
		}
		b := newInbox(m)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go b.run(ctx)
		f(b)
	})
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		if m.Name != "regiond.bus.dropped" {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			dropped += p.Value
		}
	}
	return dropped
}

func numbered(i, size int) *nats.Msg {
	data := make([]byte, size)
	binary.BigEndian.PutUint64(data, uint64(i))
	return &nats.Msg{Subject: "s", Data: data}
}

func missed(b *inbox) bool {
	select {
	case <-b.drops:
		return true
	default:
		return false
	}
}

// While nobody reads, the inbox keeps the oldest messages up to either bound, in
// order, and says of each other one that it was missed.
func TestInboxBounds(t *testing.T) {
	for _, tt := range []struct {
		name       string
		size, fits int
	}{
		{"messages", 8, InboxMessages},
		{"bytes", 1<<20 - 1, InboxBytes >> 20}, // with the subject's byte, 1 MiB each
	} {
		t.Run(tt.name, func(t *testing.T) {
			const beyond = 5
			dropped := inboxBubble(t, func(b *inbox) {
				for i := range tt.fits {
					b.in <- numbered(i, tt.size)
				}
				synctest.Wait()
				if missed(b) {
					t.Error("said that something was dropped although everything fitted")
				}
				for i := range beyond {
					b.in <- numbered(tt.fits+i, tt.size)
					synctest.Wait()
					if !missed(b) {
						t.Errorf("nothing said of message %d beyond", i)
					}
				}
				for i := range tt.fits {
					if got := binary.BigEndian.Uint64((<-b.out).Data); got != uint64(i) {
						t.Fatalf("message %d is number %d", i, got)
					}
				}
				b.in <- numbered(1, tt.size)
				<-b.out
			})
			if dropped != beyond {
				t.Errorf("%d counted as dropped, want %d", dropped, beyond)
			}
		})
	}
}

// nats.go tells only of the first message that it drops in a row. Whoever asked
// for everything again at that moment would miss the rest, so it is said again once
// the row is over.
func TestInboxTellsOfOverflowTwice(t *testing.T) {
	inboxBubble(t, func(b *inbox) {
		b.overflow()
		if !missed(b) {
			t.Error("nothing said when messages begin to be dropped")
		}
		b.in <- numbered(1, 8)
		<-b.out
		synctest.Wait()
		if !missed(b) {
			t.Error("nothing said after the last of them was dropped")
		}
		b.in <- numbered(2, 8)
		<-b.out
		synctest.Wait()
		if missed(b) {
			t.Error("said that something was dropped although nothing was")
		}
	})
}
