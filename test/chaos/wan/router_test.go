//go:build chaos && linux

package wan_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos/netns"
	"github.com/regiond/regiond/test/chaos/wan"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// pair is two namespaces with a line between them, and an echo server in the second,
// on TCP.
func pair(t *testing.T) (r *wan.Router, here *netns.Namespace, there string) {
	t.Helper()
	r = wan.New(1)
	t.Cleanup(r.Close)
	var all []*netns.Namespace
	for i, label := range []string{"here", "there"} {
		ns, err := netns.New(label)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ns.Close)
		addr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 78, 0, byte(i + 1)}), 24)
		if _, err := r.Attach(ns, addr); err != nil {
			t.Fatal(err)
		}
		all = append(all, ns)
	}
	const addr = "10.78.0.2:7000"
	listener, err := all[1].Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { // one caller after the other
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() }) // a line may have swallowed its end
			_, _ = io.Copy(conn, conn)
			stop()
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	return r, all[0], addr
}

// echo sends a message and returns how long its echo took.
func echo(conn net.Conn, within time.Duration) (time.Duration, error) {
	began := time.Now()
	if err := conn.SetDeadline(began.Add(within)); err != nil {
		return 0, err
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(conn, make([]byte, 5))
	return time.Since(began), err
}

func TestLinesDelayAndCut(t *testing.T) {
	r, here, there := pair(t)
	set := func(from, to int, l wan.Link) {
		t.Helper()
		if err := r.Set(from, to, l); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := here.Dial(t.Context(), "tcp", there)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	slow := wan.Link{Delay: 40 * time.Millisecond}
	set(0, 1, slow)
	set(1, 0, slow)
	if took, err := echo(conn, 10*time.Second); err != nil || took < 80*time.Millisecond {
		t.Errorf("there and back in %v, %v: want 80ms at least", took, err)
	}
	_, before := r.Packets()
	set(1, 0, slow.Cut()) // what is said arrives, and nothing comes back
	if _, err := echo(conn, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an answer came over a cut line: %v", err)
	}
	if _, lost := r.Packets(); lost == before {
		t.Error("the cut swallowed nothing")
	}
	set(1, 0, slow) // TCP sends again what was lost
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
		t.Errorf("after the cut: %v", err)
	}
	set(0, 1, wan.Link{LossUDP: 1}) // is no matter of TCP's
	if _, err := echo(conn, 10*time.Second); err != nil {
		t.Error(err)
	}
}

// A namespace is a host of its own, and what runs there ends with it.
func TestNamespacesAreHosts(t *testing.T) {
	one, err := netns.New("one")
	if err != nil {
		t.Fatal(err)
	}
	const addr = "127.0.0.1:6379"
	listener, err := one.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	two, err := netns.New("two")
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	if conn, err := two.Dial(t.Context(), "tcp", addr); err == nil {
		_ = conn.Close()
		t.Error("a port of one namespace answers in another")
	}
	conn, err := one.Dial(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sleep := exec.Command("sleep", "600")
	if err := one.Start(sleep); err != nil {
		t.Fatal(err)
	}
	one.Close()
	if err := sleep.Wait(); err == nil || sleep.ProcessState.Success() {
		t.Errorf("the program ended with %v, want it killed", err)
	}
}
