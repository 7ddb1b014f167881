package gossip_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/region/gossip"
)

// soon waits for something that happens on real sockets.
func soon(t *testing.T, what string, changed <-chan struct{}, done func() bool) {
	t.Helper()
	deadline := time.After(30 * s)
	for !done() {
		select {
		case <-changed:
		case <-time.After(50 * ms):
		case <-deadline:
			t.Fatalf("not within 30s: %s", what)
		}
	}
}

func loopback(t *testing.T, region string, seeds func() []string) *gossip.Gossip {
	t.Helper()
	g, err := gossip.New(gossip.Options{
		Region: region, Instance: "a", Boot: boot, Cluster: "prod", Key: bytes.Repeat([]byte{1}, 32),
		Bind: "localhost:0", Seeds: seeds,
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Real sockets: three find each other on free ports, one leaves.
func TestLoopback(t *testing.T) {
	var seeds []string
	var gs []*gossip.Gossip
	for _, region := range []string{"r1", "r2", "r3"} {
		g := loopback(t, region, func() []string { return seeds })
		seeds = append(seeds, g.Addr())
		gs = append(gs, g)
	}
	stop := make([]func(), 3)
	for i, g := range gs {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- g.Run(ctx) }()
		stop[i] = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run ended with %v", err)
			}
		})
		defer stop[i]()
	}
	for _, g := range gs {
		soon(t, "three see each other", g.Changed(), func() bool { return len(g.Members()) == 3 })
	}
	stop[2]()
	soon(t, "one has left", gs[0].Changed(), func() bool { return gs[0].Members()[2].State == gossip.Left })
	if err := gs[2].Run(t.Context()); err == nil {
		t.Error("Run runs twice")
	}
	free, err := net.Listen("tcp", gs[2].Addr())
	if err != nil {
		t.Fatalf("the port is not free after Run: %v", err)
	}
	free.Close()
}

// A port in use is said by New, and Close gives back what New took, also when
// somebody has called already.
func TestBind(t *testing.T) {
	g := loopback(t, "r1", nil)
	_, err := gossip.New(gossip.Options{Region: "r2", Instance: "a", Boot: boot, Bind: g.Addr()})
	if err == nil || !strings.Contains(err.Error(), "bind gossip to "+g.Addr()) {
		t.Errorf("a port in use: %v", err)
	}
	c, err := net.Dial("tcp", g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := g.Run(t.Context()); err == nil {
		t.Error("Run after Close")
	}
	again, err := gossip.New(gossip.Options{Region: "r2", Instance: "a", Boot: boot, Bind: g.Addr()})
	if err != nil {
		t.Fatalf("the port is not free after Close: %v", err)
	}
	again.Close()
}

// A name that does not resolve yet keeps nobody from stopping.
func TestAdvertiseThatDoesNotResolve(t *testing.T) {
	log := &journal{}
	g, err := gossip.New(gossip.Options{
		Region: "r1", Instance: "a", Boot: boot, Bind: "127.0.0.1:0", Advertise: "nowhere.invalid:0", Logger: log.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(g.Addr())
	if !strings.HasPrefix(g.Addr(), "nowhere.invalid:") || port == "0" {
		t.Errorf("Addr is %s, want nowhere.invalid and the port bound to", g.Addr())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	soon(t, "a warning", nil, func() bool { return log.count("own gossip address cannot be resolved") == 1 })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
}
