package natsbus_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/sync/natsbus"
)

// patience is how long a test waits for what must come: far longer than it takes,
// because the machine may be busy with something else.
const patience = 30 * time.Second

// start runs a component until the test, or the returned function, ends it.
func start(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func startBus(t *testing.T, opts natsbus.Options) (b *natsbus.Bus, stop func()) {
	t.Helper()
	b, err := natsbus.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return b, start(t, b.Run)
}

func startEmbedded(t *testing.T, opts natsbus.EmbeddedOptions) (e *natsbus.Embedded, stop func()) {
	t.Helper()
	e, err := natsbus.NewEmbedded(opts)
	if err != nil {
		t.Fatal(err)
	}
	stop = start(t, e.Run)
	receive(t, e.Ready(), "the server is ready")
	return e, stop
}

// receive waits for a channel.
func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
		panic("unreachable")
	}
}

// await asks again and again until cond holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !cond() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// crosses publishes until to has heard of it: what is sent while a peer does not
// yet know of a subscription is lost, as the contract says.
func crosses(t *testing.T, from, to *natsbus.Bus, subject string) {
	t.Helper()
	text := fmt.Sprintf("%s at %d", subject, time.Now().UnixNano())
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for {
		select {
		case <-ticker.C:
			_ = from.Publish(subject, []byte(text)) // refused while it is not connected
		case m := <-to.Messages():
			if m.Subject == subject && string(m.Data) == text {
				return
			}
		case <-deadline:
			t.Fatalf("no message on %s crossed within %v", subject, patience)
		}
	}
}

// natsProcess is a real NATS server in a process of its own.
type natsProcess struct {
	cmd     *exec.Cmd
	address string
	input   io.Closer
}

// startNATS starts a server; port 0 takes a free one.
func startNATS(t *testing.T, address string) *natsProcess {
	t.Helper()
	p := &natsProcess{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), serverEnv+"="+address)
	p.cmd.Stderr = os.Stderr
	input, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.input = input
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the server at %s did not start: %v", address, err)
	}
	p.address = strings.TrimSpace(line)
	return p
}

// kill ends the process as a power cut does; a second time it does nothing.
func (p *natsProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // "signal: killed"
	_ = p.input.Close()
}

func (p *natsProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (p *natsProcess) url() string { return "nats://" + p.address }

// splitAddr gives nats-server host and port; 0 is −1 there.
func splitAddr(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, err
}

// counts reads counters from a reader.
type counts struct {
	t      *testing.T
	reader *metric.ManualReader
	meters *metric.MeterProvider
}

func newCounts(t *testing.T) *counts {
	r := metric.NewManualReader()
	return &counts{t: t, reader: r, meters: metric.NewMeterProvider(metric.WithReader(r))}
}

// of is the sum of an instrument, or of those of its points that have an attribute
// of this value.
func (c *counts) of(name, value string) int64 {
	c.t.Helper()
	var rm metricdata.ResourceMetrics
	if err := c.reader.Collect(context.Background(), &rm); err != nil {
		c.t.Fatal(err)
	}
	var sum int64
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				sum += sumPoints(m.Data, value)
			}
		}
	}
	return sum
}

func sumPoints(data metricdata.Aggregation, value string) (sum int64) {
	var points []metricdata.DataPoint[int64]
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		points = d.DataPoints
	case metricdata.Gauge[int64]:
		points = d.DataPoints
	}
	for _, p := range points {
		match := value == ""
		for _, kv := range p.Attributes.ToSlice() {
			match = match || kv.Value.AsString() == value
		}
		if match {
			sum += p.Value
		}
	}
	return sum
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
