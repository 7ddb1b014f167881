package natsbus_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/natsbus"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/meters"
)

// configured reads a nats.conf.
func configured(t *testing.T, conf string) *server.Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte("listen: \"127.0.0.1:-1\"\n"+conf), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog, opts.ConfigFile = true, true, "" // of another name no reload is supported
	return opts
}

// serve runs a server until the test ends.
func serve(t *testing.T, opts *server.Options) (s *server.Server, address string) {
	t.Helper()
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s, s.Addr().String()
}

// What the operator of NATS does not allow is seen, and only that is refused.
func TestPermissions(t *testing.T) {
	t.Parallel()
	_, address := serve(t, configured(t, `
		authorization: { users: [
			{user: eu, password: e, permissions: {publish: ["rl.v1.*.eu", "rl.v1.snapshot.*", "rl.v1.loan.eu.*"], subscribe: ["rl.v1.usage.*", "rl.v1.heartbeat.*", "rl.v1.snapshot.eu", "rl.v1.loan.*.*", "rl.v1.reset.*", "rl.v1.top.*"]}}
			{user: us, password: u, permissions: {publish: ["rl.v1.*.us", "rl.v1.snapshot.*"], subscribe: ["rl.v1.usage.*", "rl.v1.heartbeat.*", "rl.v1.loan.*.*", "rl.v1.reset.*", "rl.v1.top.*"]}}
		] }`))
	c, log, deaf := meters.New(), &capture.Log{}, &capture.Log{}
	eu, _ := startBus(t, natsbus.Options{
		URLs: []string{"nats://eu:e@" + address}, Region: "eu", Logger: logger(log), Meter: c.Meter,
	})
	us, _ := startBus(t, natsbus.Options{URLs: []string{"nats://us:u@" + address}, Region: "us", Logger: logger(deaf)})
	crosses(t, eu, us, usageEU)
	crosses(t, us, eu, "rl.v1.snapshot.eu")

	for range 20 {
		if err := eu.Publish(usageUS, []byte("forged")); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all refusals are counted", func() bool { return c.Of(t, "regiond.bus.dropped", "reason", "refused") == 20 })
	if s := eu.Status(); !s.Connected || !strings.Contains(s.LastError, usageUS) {
		t.Errorf("the status shows %+v", s)
	}
	if n := strings.Count(log.String(), usageUS); n != 1 {
		t.Errorf("the refusal was logged %d times, want once:\n%s", n, log)
	}
	await(t, "a refused subscription is in the status", func() bool { return strings.Contains(us.Status().LastError, "rl.v1.snapshot.us") })
	if !strings.Contains(deaf.String(), "rl.v1.snapshot.us") {
		t.Errorf("a refused subscription is not logged:\n%s", deaf)
	}
	if err := eu.Publish(usageEU, []byte("last")); err != nil {
		t.Fatal(err)
	}
	for {
		m := receive(t, us.Messages(), "the last message")
		if string(m.Data) == "forged" {
			t.Fatal("a message under another region's name arrived")
		}
		if string(m.Data) == "last" {
			break
		}
	}
}

// A server that takes less than our largest message is logged, once for each
// connection; one that takes all is not.
func TestSmallPayloadIsLogged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		conf   string
		logged int
	}{
		{`max_payload: 65536`, 1},
		{`max_payload: 528383`, 1}, // a byte less than the largest message with its header
		{`max_payload: 528384`, 0},
		{``, 0},
	} {
		log := &capture.Log{}
		_, address := serve(t, configured(t, tt.conf))
		b, stop := startBus(t, natsbus.Options{URLs: []string{"nats://" + address}, Region: "eu", Logger: logger(log)})
		receive(t, b.Gaps(), "the first connection is a gap")
		stop()
		if n := strings.Count(log.String(), "set its max_payload"); n != tt.logged {
			t.Errorf("%q: logged %d times, want %d:\n%s", tt.conf, n, tt.logged, log)
		}
	}
}

// A password that cannot be read, or is wrong, is asked for again until somebody corrects
// it, and again when the server has another; it is shown nowhere.
func TestPasswordIsAskedForAtEveryConnection(t *testing.T) {
	t.Parallel()
	with := func(password string) *server.Options {
		return configured(t, "authorization: {user: eu, password: "+password+"}")
	}
	s, address := serve(t, with("right"))
	var password atomic.Pointer[string]
	log := &capture.Log{}
	b, _ := startBus(t, natsbus.Options{
		URLs: []string{"nats://" + address}, Region: "eu", Logger: logger(log), Username: "eu",
		Password: func() (string, error) {
			if p := password.Load(); p != nil {
				return *p, nil
			}
			return "", errors.New("no such file")
		},
	})
	use := func(p string) { password.Store(&p) }
	await(t, "the log says that it cannot be read", func() bool {
		return strings.Contains(log.String(), "the password of eu at NATS cannot be read")
	})
	use("wrong")
	await(t, "the status shows it", func() bool { return strings.Contains(b.Status().LastError, "Authorization Violation") })
	if b.Connected() {
		t.Fatalf("connected: %+v", b.Status())
	}
	use("right")
	receive(t, b.Gaps(), "connected with the corrected password")
	use("rotated")
	if len(b.Gaps()) != 0 || !b.Connected() {
		t.Error("a connection ended with its file")
	}
	if err := s.ReloadOptions(with("rotated")); err != nil {
		t.Fatal(err)
	}
	receive(t, b.Gaps(), "connected with the replaced password")
	for _, p := range []string{"right", "wrong", "rotated"} {
		if !b.Connected() || strings.Contains(log.String(), p) {
			t.Errorf("status is %+v, the log %s", b.Status(), log)
		}
	}
}

// Some errors of a server have nats.go close its connection for good. The bus goes
// on to the next.
func TestServerErrorIsNotTheEnd(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	connections := 0
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections++
			refuse(c)
		}
	}()
	b, stop := startBus(t, natsbus.Options{URLs: []string{"nats://" + l.Addr().String()}, Region: "eu"})
	for range 3 {
		receive(t, b.Gaps(), "one more connection")
	}
	await(t, "the status shows it", func() bool { return strings.Contains(b.Status().LastError, "out of order") })
	stop()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	if connections < 3 {
		t.Errorf("%d connections, want 3 at least", connections)
	}
}

// refuse is a server that answers two pings, the last after the subscriptions, and
// then sends an error that nats.go does not know.
func refuse(c net.Conn) {
	defer func() { _ = c.Close() }()
	_, _ = fmt.Fprint(c, "INFO {\"server_id\":\"x\",\"proto\":1,\"max_payload\":1048576,\"headers\":true}\r\n")
	pings := 0
	for in := bufio.NewScanner(c); in.Scan(); {
		if !strings.HasPrefix(in.Text(), "PING") {
			continue
		}
		_, _ = fmt.Fprint(c, "PONG\r\n")
		if pings++; pings == 2 {
			_, _ = fmt.Fprint(c, "-ERR 'out of order'\r\n")
		}
	}
}

// A reader that is too slow loses messages, which are counted, and goes on with newer ones. The
// inbox is bounded in messages and in bytes.
func TestSlowReader(t *testing.T) {
	for _, size := range []int{8, 256 << 10} {
		c := meters.New()
		e, _ := startEmbedded(t, natsbus.EmbeddedOptions{Name: "eu"})
		eu, _ := startBus(t, natsbus.Options{Server: e, Region: "eu"})
		us, _ := startBus(t, natsbus.Options{Server: e, Region: "us", Meter: c.Meter})
		crosses(t, eu, us, usageEU)
		receive(t, us.Gaps(), "the first connection is a gap")

		fits := min(natsbus.InboxMessages, natsbus.InboxBytes/size)
		for sent := 0; c.Of(t, "regiond.bus.dropped", "reason", "reader") < 100; sent++ {
			if c.Of(t, "regiond.bus.received") > float64(fits+1000) && c.Of(t, "regiond.bus.dropped", "reason", "reader") == 0 {
				t.Fatalf("nothing of %d messages of %d bytes was dropped, %d fit", sent, size, fits)
			}
			for errors.Is(eu.Publish(usageEU, make([]byte, size)), natsbus.ErrFull) {
				continue // this test wants them to arrive
			}
		}
		crosses(t, eu, us, usageEU)
		if len(us.Gaps()) != 0 {
			t.Error("a slow reader is taken for a lost connection")
		}
	}
}

// TestHeaderCrosses: a header arrives as it was sent, and a message without one has
// none; what others make too large arrives without.
func TestHeaderCrosses(t *testing.T) {
	server := startNATS(t, "127.0.0.1:0")
	eu, _ := startBus(t, natsbus.Options{URLs: []string{server.url()}, Region: "eu"})
	us, _ := startBus(t, natsbus.Options{URLs: []string{server.url()}, Region: "us"})
	crosses(t, eu, us, usageEU)
	sent := []meshsync.Field{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, {Name: "tracestate", Value: "a=1,b=2"}}
	for _, header := range [][]meshsync.Field{sent, nil, sent[:1]} {
		if err := eu.Publish(usageEU, []byte("marked"), header...); err != nil {
			t.Fatal(err)
		}
		m := marked(t, us)
		slices.SortFunc(m.Header, func(a, b meshsync.Field) int { return strings.Compare(a.Name, b.Name) })
		if !slices.Equal(m.Header, header) || (header == nil) != (m.Header == nil) {
			t.Errorf("%v arrived as %v", header, m.Header)
		}
	}

	nc, err := nats.Connect(server.url())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, header := range []nats.Header{
		{"traceparent": {strings.Repeat("x", meshsync.MaxFieldBytes)}},
		{"a": {"1"}, "b": {"2"}, "c": {"3"}, "d": {"4"}, "e": {"5"}},
		{"a": {"1", "2", "3", "4", "5"}},
	} {
		if err := nc.PublishMsg(&nats.Msg{Subject: usageEU, Data: []byte("marked"), Header: header}); err != nil {
			t.Fatal(err)
		}
		if m := marked(t, us); m.Header != nil {
			t.Errorf("a header of %d fields arrived as %d", len(header), len(m.Header))
		}
	}
}

// marked waits for the next message of the test's own.
func marked(t *testing.T, b *natsbus.Bus) meshsync.Message {
	t.Helper()
	for {
		if m := receive(t, b.Messages(), "the message"); string(m.Data) == "marked" {
			return m
		}
	}
}
