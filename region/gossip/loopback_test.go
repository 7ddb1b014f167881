package gossip_test

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/ports"
)

// soon waits for something that happens on real sockets.
func soon(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * s); !done(); time.Sleep(10 * ms) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30s: %s", what)
		}
	}
}

func loopback(region, bind string, seeds ...string) gossip.Options {
	return gossip.Options{
		Members: members.New(quota.Process{Region: region, Instance: "a", Boot: boot}),
		Cluster: "prod", Keys: [][]byte{bytes.Repeat([]byte{1}, 32)}, Bind: bind,
		ConfigHash: func() string { return "" }, Seeds: func() []string { return seeds }, Regions: func(string) bool { return true },
	}
}

// run starts a Gossip and returns a function that ends it.
func run(t *testing.T, o gossip.Options) (g *gossip.Gossip, stop func() error) {
	t.Helper()
	g, err := gossip.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx); close(ended) }()
	stop = func() error { cancel(); return <-ended }
	t.Cleanup(func() { _ = stop() })
	return g, stop
}

// Real sockets: names are resolved, free ports found; one leaves and its port is
// free again.
func TestLoopback(t *testing.T) {
	port := strconv.Itoa(ports.Take(t))
	first, stop := run(t, loopback("r1", "localhost:"+port))
	second, _ := run(t, loopback("r2", "127.0.0.1:0", "localhost:"+port))
	third := loopback("r3", "127.0.0.1:0", "localhost:"+port)
	third.Advertise = "localhost:0"
	last, _ := run(t, third)
	for _, g := range []*gossip.Gossip{first, second, last} {
		soon(t, "three see each other", func() bool { return len(g.Members()) == 3 })
	}
	if err := stop(); err != nil {
		t.Errorf("Run ended with %v", err)
	}
	soon(t, "one has left", func() bool { return second.Members()[0].Gossip.State == members.Dead })
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatalf("the port is not free after Run: %v", err)
	}
	defer l.Close()
	again, err := gossip.New(loopback("r1", "127.0.0.1:"+port))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "start gossip on 127.0.0.1:"+port+", TCP and UDP:") ||
		!strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a port in use: %v", err)
	}
}

// A name that does not resolve yet keeps nobody from stopping.
func TestAdvertiseThatDoesNotResolve(t *testing.T) {
	o, log := loopback("r1", "127.0.0.1:0"), &capture.Log{}
	o.Advertise, o.Logger = "nowhere.invalid:0", logger(log)
	_, stop := run(t, o)
	soon(t, "a warning", func() bool { return logged(log, "own gossip address cannot be resolved") == 1 })
	if err := stop(); err != nil {
		t.Errorf("Run ended with %v", err)
	}
}
