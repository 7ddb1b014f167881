package demo_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/internal/demo"
)

// TestTransport: what is sent through a cut is lost without an error, from either side,
// and no stream passes it; what is sent after healing is the first to arrive.
func TestTransport(t *testing.T) {
	c := demo.NewCuts(demo.Regions())
	var at []*demo.Transport
	for _, region := range demo.Regions() {
		tr, err := c.Listen(region)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		})
		at = append(at, tr)
	}
	eu, us, ap := at[0], at[1], at[2]
	set := func(off bool) {
		if err := c.Set("eu-west", off); err != nil {
			t.Fatal(err)
		}
	}
	send := func(from, to *demo.Transport, text string) {
		t.Helper()
		if _, err := from.WriteTo([]byte(text), to.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(to *demo.Transport, text string) {
		t.Helper()
		if p := <-to.PacketCh(); string(p.Buf) != text {
			t.Errorf("%s received %q first, want %q", to.Addr(), p.Buf, text)
		}
	}
	set(true)
	send(eu, us, "lost")
	send(us, eu, "lost")
	send(ap, us, "past the cut")
	arrives(us, "past the cut")
	for _, path := range [][2]*demo.Transport{{eu, us}, {us, eu}} {
		if conn, err := path[0].DialTimeout(path[1].Addr(), 10*time.Second); err == nil {
			conn.Close()
			t.Errorf("a stream from %s to %s passes the cut", path[0].Addr(), path[1].Addr())
		}
	}
	set(false)
	send(eu, us, "healed")
	send(us, eu, "healed")
	arrives(us, "healed")
	arrives(eu, "healed")
	conn, err := eu.DialTimeout(us.Addr(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	(<-us.StreamCh()).Close()
}
