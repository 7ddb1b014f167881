package faultproxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/test/faultproxy"
	"github.com/regiond/regiond/test/leaks"
	"github.com/regiond/regiond/test/redisserver"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// timeout bounds the wait for what must happen; nothing here takes that long.
const timeout = 10 * time.Second

// setup is a server and a proxy to it.
func setup(t *testing.T) (*redisserver.Server, *faultproxy.Proxy) {
	t.Helper()
	srv := redisserver.Start(t, redisserver.Options{})
	return srv, faultproxy.Start(t, srv.Addr())
}

// raw is a plain connection through the proxy.
func raw(t *testing.T, proxy *faultproxy.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("received %q, %v; want %q", got[:n], err, want)
	}
}

func await(t *testing.T, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(timeout):
		t.Fatalf("not within %v", timeout)
	}
}

func asleep(struck <-chan struct{}) bool {
	select {
	case <-struck:
		return false
	default:
		return true
	}
}

func TestSwallowSilencesWhatFollowsOnTheConnection(t *testing.T) {
	t.Parallel()
	srv, proxy := setup(t)
	conn := raw(t, proxy)
	struck := proxy.Arm(faultproxy.Fault{Kind: faultproxy.Swallow, Reply: 2})
	send(t, conn, "INCR n\r\nINCR n\r\nINCR n\r\n")
	receive(t, conn, ":1\r\n")
	await(t, struck)
	send(t, conn, "INCR n\r\n")
	for srv.Calls(t, "incr") < 4 { // later requests still arrive
		if t.Context().Err() != nil {
			t.Fatal("the server never saw the last request")
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v; want silence on an open connection", n, err)
	}
	other := raw(t, proxy)
	send(t, other, "PING\r\n")
	receive(t, other, "+PONG\r\n")
}

const noScript = "-NOSCRIPT No matching script. Please use EVAL.\r\n"

// Existing connections of a kind fall silent for ever; others, and new ones, go on.
func TestSilence(t *testing.T) {
	_, proxy := setup(t)
	const ping, script = "PING\r\n", "*3\r\n$7\r\nEVALSHA\r\n$1\r\nx\r\n$1\r\n0\r\n"
	for _, which := range []faultproxy.Connections{faultproxy.All, faultproxy.Scripts, faultproxy.Others} {
		pinged, scripted := raw(t, proxy), raw(t, proxy)
		send(t, pinged, ping)
		receive(t, pinged, "+PONG\r\n")
		send(t, scripted, script)
		receive(t, scripted, noScript)
		proxy.Silence(which)
		if which == faultproxy.Others { // what decides goes on, whatever the connection has carried
			for _, conn := range []net.Conn{pinged, scripted} {
				send(t, conn, script)
				receive(t, conn, noScript)
			}
		}
		for conn, speaks := range map[net.Conn]bool{pinged: which == faultproxy.Scripts, scripted: false, raw(t, proxy): true} {
			send(t, conn, ping)
			if speaks {
				receive(t, conn, "+PONG\r\n")
				continue
			}
			if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("kind %d: a silent connection gave %d bytes, %v", which, n, err)
			}
		}
	}
}

func TestFaultsAtTheirReply(t *testing.T) {
	t.Parallel()
	srv, proxy := setup(t)
	for _, row := range []struct {
		kind faultproxy.Kind
		want string // all that the client gets for three commands
		ends bool   // then the connection ends
	}{
		{kind: faultproxy.Drop, want: "$1\r\n1\r\n", ends: true},
		{kind: faultproxy.Cut, want: "$1\r\n1\r\n$", ends: true},
		{kind: faultproxy.Stray, want: "$1\r\n1\r\n+stray\r\n$1\r\n2\r\n$1\r\n3\r\n"},
	} {
		before := srv.Calls(t, "echo")
		conn := raw(t, proxy)
		struck := proxy.Arm(faultproxy.Fault{Kind: row.kind, Reply: 2})
		send(t, conn, "ECHO 1\r\nECHO 2\r\nECHO 3\r\n")
		receive(t, conn, row.want)
		await(t, struck)
		if got := srv.Calls(t, "echo") - before; got < 2 {
			t.Errorf("kind %d: the server ran %d commands, want the struck one among them", row.kind, got)
		}
		if row.ends {
			if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("kind %d: read %d bytes, %v; want the connection's end", row.kind, n, err)
			}
			continue
		}
		send(t, conn, "ECHO 4\r\n") // it strikes once
		receive(t, conn, "$1\r\n4\r\n")
	}
}

func TestScriptsAloneAreCounted(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := raw(t, proxy)
	struck := proxy.Arm(faultproxy.Fault{Kind: faultproxy.Drop, Reply: 2, Scripts: true})
	for _, exchange := range [][2]string{
		{"PING\r\n", "+PONG\r\n"},
		{"EVALSHA x 0\r\n", noScript}, // the first
		{"EVAL \"return 1\" 0\r\n", ":1\r\n"},
		{"GET none\r\n", "$-1\r\n"},
		{"EVALSHA_RO x 0\r\n", noScript}, // only reads
	} {
		send(t, conn, exchange[0])
		receive(t, conn, exchange[1])
	}
	if !asleep(struck) {
		t.Fatal("struck before the second script")
	}
	send(t, conn, "evalsha x 0\r\n")
	await(t, struck)
	if rest, err := io.ReadAll(conn); len(rest) != 0 {
		t.Errorf("received %q, %v; want nothing", rest, err)
	}
}

// A hundred replies on a path of 40 ms are late once, not a hundred times.
func TestDelayIsLatency(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	conn := raw(t, proxy)
	const d, n = 40 * time.Millisecond, 100
	proxy.Delay(d)
	start := time.Now()
	send(t, conn, strings.Repeat("PING\r\n", n))
	receive(t, conn, strings.Repeat("+PONG\r\n", n))
	if took := time.Since(start); took < d || took > n*d/2 {
		t.Errorf("%d replies on a path of %v took %v", n, d, took)
	}
}

// Close returns while a reply is held back for an hour and another is swallowed.
func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	_, proxy := setup(t)
	held, swallowed := raw(t, proxy), raw(t, proxy)
	struck := proxy.Arm(faultproxy.Fault{Kind: faultproxy.Swallow, Reply: 1})
	send(t, swallowed, "PING\r\n")
	await(t, struck)
	proxy.Delay(time.Hour)
	struck = proxy.Arm(faultproxy.Fault{Kind: faultproxy.Stray, Reply: 1})
	send(t, held, "PING\r\n")
	await(t, struck)

	proxy.Close()
	proxy.Close()
	for _, conn := range []net.Conn{held, swallowed} {
		if rest, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) || len(rest) != 0 {
			t.Errorf("received %q, %v; want the connection's end", rest, err)
		}
	}
	if conn, err := net.Dial("tcp", proxy.Addr()); err == nil {
		t.Errorf("dial after Close: %v, want an error", conn.RemoteAddr())
	}
}
