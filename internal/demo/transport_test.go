package demo_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/internal/demo"
)

func listen(t *testing.T, c *demo.Cuts, region string) *demo.Transport {
	t.Helper()
	tr, err := c.Listen(region)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

func set(t *testing.T, c *demo.Cuts, region string, off bool) {
	t.Helper()
	if _, err := c.Set(region, off); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, from, to *demo.Transport, text string) {
	t.Helper()
	if _, err := from.WriteTo([]byte(text), to.Addr()); err != nil {
		t.Fatal(err)
	}
}

// TestTransportLosesPackets: what is sent through a cut is lost without an error,
// from either side, and what is sent after healing is the first to arrive.
func TestTransportLosesPackets(t *testing.T) {
	c := demo.NewCuts(demo.Regions())
	eu, us, ap := listen(t, c, "eu-west"), listen(t, c, "us-east"), listen(t, c, "ap-south")
	set(t, c, "eu-west", true)
	send(t, eu, us, "lost")
	send(t, us, eu, "lost")
	send(t, ap, us, "past the cut")
	if p := <-us.PacketCh(); string(p.Buf) != "past the cut" {
		t.Errorf("us-east received %q first", p.Buf)
	}
	set(t, c, "eu-west", false)
	send(t, eu, us, "healed")
	send(t, us, eu, "healed")
	for _, at := range []*demo.Transport{us, eu} {
		if p := <-at.PacketCh(); string(p.Buf) != "healed" {
			t.Errorf("%s received %q first", at.Addr(), p.Buf)
		}
	}
}

func TestTransportRefusesStreams(t *testing.T) {
	c := demo.NewCuts(demo.Regions())
	eu, us := listen(t, c, "eu-west"), listen(t, c, "us-east")
	set(t, c, "us-east", true)
	for _, path := range [][2]*demo.Transport{{eu, us}, {us, eu}} {
		if conn, err := path[0].DialTimeout(path[1].Addr(), 10*time.Second); err == nil {
			conn.Close()
			t.Errorf("a stream from %s to %s passes the cut", path[0].Addr(), path[1].Addr())
		}
	}
	set(t, c, "us-east", false)
	conn, err := eu.DialTimeout(us.Addr(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	(<-us.StreamCh()).Close()
}
