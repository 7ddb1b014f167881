package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/test/capture"
)

// frozenCollector takes connections and reads nothing from them.
func frozenCollector(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // never accepted: the kernel does, and lets them hang
	return l.Addr().String()
}

// refusingCollector is an address at which nobody listens.
func refusingCollector(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// TestCollectorAway: whatever a collector does, or does not, each check is answered as
// without it, many more than its queue holds; what is dropped is counted, told in one
// line, and the process ends within five seconds.
func TestCollectorAway(t *testing.T) {
	const checks, queue = 400, 16
	for _, row := range []struct {
		name, protocol string
		away           func(t *testing.T) string
	}{
		{"frozen", "http/protobuf", frozenCollector},
		{"refusing", "http/protobuf", refusingCollector},
		{"frozen grpc", "grpc", frozenCollector},
		{"refusing grpc", "grpc", refusingCollector},
	} {
		// A process reads its environment when it starts; the rows wait for its end together.
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+row.away(t))
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", row.protocol)
		t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
		t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", fmt.Sprint(queue))
		p := start(t, strings.ReplaceAll(inMemory(), "units: 5", "units: 300"))
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			allowed := 0
			for range checks {
				switch a := p.ask(t, "POST", "/v1/check", `{"tenant":"acme"}`); a.status {
				case http.StatusOK:
					allowed++
				case http.StatusTooManyRequests:
				default:
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
			if allowed != 300 {
				t.Errorf("%d of %d checks were allowed under 300", allowed, checks)
			}
			// All ended, and at most the queue is kept: the rest is lost, and counted.
			capture.Eventually(t, func() error {
				if lost := p.metrics(t).sum("regiond_spans_dropped_total"); lost < checks-queue {
					return fmt.Errorf("%v spans counted as lost", lost)
				}
				return nil
			})
			began := time.Now()
			p.stop()
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v to stop", took)
			}
			told := p.log.Lines("spans are dropped until the collector accepts them again; decisions are not affected")
			if len(told) != 1 {
				t.Errorf("%d lines tell of it: %v", len(told), told)
			}
		})
	}
}

// TestCollectorBack: a collector that takes spans again is told of in one line.
func TestCollectorBack(t *testing.T) {
	r := newReceiver(t)
	l := r.server.Listener.Addr().String()
	r.server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "50")
	p := start(t, inMemory())
	p.check(t, "early")
	p.log.Await(t, "spans are dropped until the collector accepts them again; decisions are not affected", 1)
	back, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", l)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(back) }() // ends when it is closed
	t.Cleanup(func() { _ = server.Close() })
	p.check(t, "late")
	p.log.Await(t, "the collector accepts spans again", 1)
}

// TestMetricsOff: with OTEL_METRICS_EXPORTER=none only the process's own series are left.
func TestMetricsOff(t *testing.T) {
	count := func() int { return strings.Count(start(t, inMemory()).admin.get(t, "/metrics").body, "\nregiond_") }
	if count() == 0 {
		t.Error("no metrics by default")
	}
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	if n := count(); n != 0 {
		t.Errorf("%d series although there should be none", n)
	}
}
