package natsbus_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/regiond/regiond/sync/natsbus"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/leaks"
)

// timeout is how long a test waits for what must come: far longer than it takes, because
// the machine may be busy.
const timeout = 30 * time.Second

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
	case <-time.After(timeout):
		t.Fatalf("not within %v: %s", timeout, what)
		panic("unreachable")
	}
}

// await polls until cond holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	capture.Eventually(t, func() error {
		if !cond() {
			return errors.New(what)
		}
		return nil
	})
}

// crosses publishes until to receives it: what is sent while a peer does not yet know of a
// subscription is lost, by contract. It leaves none of its messages behind.
func crosses(t *testing.T, from, to *natsbus.Bus, subject string) {
	t.Helper()
	text := fmt.Sprintf("%s at %d: ", subject, time.Now().UnixNano())
	last := 0 // of those that the bus took; they arrive in this order
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(timeout)
	for {
		select {
		case <-ticker.C:
			if from.Publish(subject, fmt.Append(nil, text, last+1)) == nil { // refused while it is not connected
				last++
			}
		case m := <-to.Messages():
			if m.Subject != subject || !strings.HasPrefix(string(m.Data), text) {
				continue
			}
			ticker.Stop()
			if string(m.Data) == fmt.Sprint(text, last) {
				return
			}
		case <-deadline:
			t.Fatalf("no message on %s crossed within %v", subject, timeout)
		}
	}
}

// serverEnv turns the test binary into a NATS server in a process of its own, so that
// tests can kill and freeze it: "client address,address of the gateway eu".
const serverEnv = "NATSBUS_TEST_SERVER"

func TestMain(m *testing.M) {
	if addresses := os.Getenv(serverEnv); addresses != "" {
		if err := serveNATS(strings.Cut(addresses, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // those that are parallel wait for connections
		panic(err)
	}
	leaks.Main(m)
}

// serveNATS prints its client address and serves until its standard input ends, which it
// does at the latest with the process that started it.
func serveNATS(address, eu string, gateways bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	opts := &server.Options{ServerName: "us", Host: host, NoLog: true, NoSigs: true}
	if opts.Port, err = strconv.Atoi(port); err != nil {
		return err
	}
	opts.Port = cmp.Or(opts.Port, server.RANDOM_PORT)
	if gateways {
		opts.Gateway = server.GatewayOpts{Name: "us", Host: "127.0.0.1", Port: server.RANDOM_PORT, Gateways: []*server.RemoteGatewayOpts{
			{Name: "eu", URLs: []*url.URL{{Scheme: "nats", Host: eu}}},
		}}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(timeout) {
		return errors.New("the server is not ready")
	}
	fmt.Println(s.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	return nil
}

// natsProcess is a NATS server in a process of its own.
type natsProcess struct {
	cmd     *exec.Cmd
	address string
	input   io.Closer
}

// startNATS starts a server; port 0 takes a free one.
func startNATS(t *testing.T, addresses string) *natsProcess {
	t.Helper()
	p := &natsProcess{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), serverEnv+"="+addresses)
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
		t.Fatalf("the server at %s did not start: %v", addresses, err)
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

func logger(to *capture.Log) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }
