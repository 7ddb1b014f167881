package faultproxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/test/faultproxy"
)

func TestRefuseAcceptDisconnect(t *testing.T) {
	t.Parallel()
	_, proxy, _ := setup(t)
	old := raw(t, proxy)
	send(t, old, "PING\r\n")
	receive(t, old, "+PONG\r\n")

	proxy.Refuse()
	proxy.Refuse() // refused already
	if conn, err := net.Dial("tcp", proxy.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial: %v, %v; want connection refused", conn, err)
	}
	send(t, old, "PING\r\n") // those that exist go on
	receive(t, old, "+PONG\r\n")

	proxy.Disconnect()
	if n, err := old.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Disconnect: %d bytes, %v; want the connection's end", n, err)
	}

	proxy.Accept()
	proxy.Accept() // accepts already
	fresh := raw(t, proxy)
	send(t, fresh, "PING\r\n")
	receive(t, fresh, "+PONG\r\n")
}

func TestServerAwayLooksLikeAHangUp(t *testing.T) {
	t.Parallel()
	srv, proxy, _ := setup(t)
	old := raw(t, proxy)
	send(t, old, "PING\r\n")
	receive(t, old, "+PONG\r\n")
	srv.Kill()
	for _, conn := range []net.Conn{old, raw(t, proxy)} {
		if rest, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) || len(rest) != 0 {
			t.Errorf("received %q, %v; want the connection's end", rest, err)
		}
	}
	srv.Restart()
	fresh := raw(t, proxy)
	send(t, fresh, "PING\r\n")
	receive(t, fresh, "+PONG\r\n")
}

// Close returns while a reply is held back for an hour and another is swallowed.
func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	_, proxy, _ := setup(t)
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
	proxy.Accept() // a closed proxy stays closed
	if conn, err := net.Dial("tcp", proxy.Addr()); err == nil {
		t.Errorf("dial after Close and Accept: %v, want an error", conn.RemoteAddr())
	}
}

// exchange may fail under faults; it may not hang.
func exchange(ctx context.Context, addr string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = io.WriteString(conn, "PING\r\n")
	_, _ = io.ReadFull(conn, make([]byte, len("+PONG\r\n")))
}

// Everything at once, for the race detector; then the path works.
func TestMethodsFromEverywhere(t *testing.T) {
	t.Parallel()
	_, proxy, _ := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for _, act := range []func(){
		func() { proxy.Arm(faultproxy.Fault{Kind: faultproxy.Cut, Reply: 3}) },
		proxy.Disarm,
		func() { proxy.Delay(time.Millisecond) },
		proxy.Disconnect,
		func() { proxy.Refuse(); proxy.Accept() },
		func() { exchange(ctx, proxy.Addr()) },
		func() { exchange(ctx, proxy.Addr()) },
	} {
		wg.Go(func() {
			for ctx.Err() == nil {
				act()
			}
		})
	}
	wg.Wait()
	proxy.Disarm()
	proxy.Disconnect()
	conn := raw(t, proxy)
	send(t, conn, "PING\r\n")
	var got bytes.Buffer
	if _, err := io.CopyN(&got, conn, 7); err != nil || got.String() != "+PONG\r\n" {
		t.Errorf("afterwards: %q, %v", got.String(), err)
	}
}
