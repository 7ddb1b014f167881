package natsbus_test

import (
	"bytes"
	"crypto/tls"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/sync/natsbus"
	"github.com/regiond/regiond/test/meters"
)

// region is an embedded server and the bus of its process.
type region struct {
	*natsbus.Embedded
	bus  *natsbus.Bus
	name string
	stop func()
}

// startRegion starts the server <name> and a bus of the region before its dot.
func startRegion(t *testing.T, opts natsbus.EmbeddedOptions) *region {
	t.Helper()
	if opts.ListenAddr == "" {
		opts.ListenAddr = "127.0.0.1:0"
	}
	e, stopServer := startEmbedded(t, opts)
	name, _, _ := strings.Cut(opts.Name, ".")
	b, stopBus := startBus(t, natsbus.Options{Server: e, Region: name})
	return &region{Embedded: e, bus: b, name: name, stop: func() { stopBus(); stopServer() }}
}

// remote is the region as a Remote of others.
func (r *region) remote(name string) natsbus.Remote {
	return natsbus.Remote{Name: name, Addr: r.GatewayAddr().String()}
}

// receives waits until messages of other arrive here.
func (r *region) receives(t *testing.T, other *region) {
	t.Helper()
	crosses(t, other.bus, r.bus, "rl.v1.usage."+other.name)
}

// gatewayTLS is that of a process that uses the first of keys and accepts all of them.
func gatewayTLS(t *testing.T, keys ...byte) *tls.Config {
	t.Helper()
	var all [][]byte
	for _, k := range keys {
		all = append(all, bytes.Repeat([]byte{k}, 32))
	}
	c, err := natsbus.GatewayTLS("prod", all)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func linked(r *region, name string) bool {
	for _, p := range r.Peers() {
		if p.Name == name {
			return p.Inbound && p.Outbound
		}
	}
	return false
}

// Two servers that name each other, and a third that only it knows of: it dials
// all, is found by them, and all receive from all.
func TestGateways(t *testing.T) {
	t.Parallel()
	c := meters.New()
	eu := startRegion(t, natsbus.EmbeddedOptions{Name: "eu", TLS: gatewayTLS(t, 1), Meter: c.Meter})
	us := startRegion(t, natsbus.EmbeddedOptions{Name: "us", TLS: gatewayTLS(t, 1), Remotes: []natsbus.Remote{eu.remote("eu")}})
	eu.receives(t, us)
	us.receives(t, eu)

	late := startRegion(t, natsbus.EmbeddedOptions{
		Name: "eu.late", TLS: gatewayTLS(t, 1),
		Remotes: []natsbus.Remote{eu.remote("eu"), us.remote("us"), {Name: "eu.late", Addr: "127.0.0.1:1"}},
	})
	regions := []*region{eu, us, late}
	for _, r := range regions {
		for _, other := range regions {
			if r != other {
				r.receives(t, other)
			}
		}
	}
	await(t, "all gateways are known", func() bool {
		return linked(eu, "us") && linked(eu, "eu.late") && linked(us, "eu.late") && linked(late, "eu") && linked(late, "us")
	})
	for _, direction := range []string{"in", "out"} {
		if got := c.Of(t, "regiond.bus.gateways", "direction", direction); got != 2 {
			t.Errorf("regiond.bus.gateways %s is %v, want 2", direction, got)
		}
	}
	late.stop()
	await(t, "the late one is gone", func() bool { return !linked(eu, "eu.late") && linked(eu, "us") })
}

// converse has all publish until a and b have received from each other several times, and
// returns every subject that arrived there; "to bad" when c received anything.
func converse(t *testing.T, a, b, c *region) map[string]bool {
	t.Helper()
	received := make(map[string]bool)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(timeout)
	for fromA, fromB := 0, 0; fromA < 20 || fromB < 20; {
		select {
		case <-ticker.C:
			for _, r := range []*region{a, b, c} {
				_ = r.bus.Publish("rl.v1.usage."+r.name, nil) // refused while it is not connected
			}
		case m := <-a.bus.Messages():
			received[m.Subject] = true
			fromB++
		case m := <-b.bus.Messages():
			received[m.Subject] = true
			fromA++
		case <-c.bus.Messages():
			received["to bad"] = true
		case <-deadline:
			t.Fatalf("not within %v: both receive from each other", timeout)
		}
	}
	return received
}

// A port that is taken is an error of Run, not the end of the process.
func TestEmbeddedPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	e, err := natsbus.NewEmbedded(natsbus.EmbeddedOptions{Name: "eu", ListenAddr: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("Run: %v", err)
	}
	select {
	case <-e.Ready():
		t.Error("the server is ready")
	default:
	}
}

func TestEmbeddedOptions(t *testing.T) {
	certificates := gatewayTLS(t, 1)
	for _, tt := range []struct {
		opts natsbus.EmbeddedOptions
		want string // part of the error; "" for none
	}{
		{natsbus.EmbeddedOptions{Name: "eu"}, ""},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "127.0.0.1:7947"}, ""},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "[::1]:7947"}, ""},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "localhost:0"}, ""},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "0.0.0.0:7947", TLS: certificates}, ""},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "0.0.0.0:7947", TLS: &tls.Config{}}, "must verify both sides"},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "0.0.0.0:7947"}, "0.0.0.0:7947 is not a loopback address and there is no TLS"},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: ":7947"}, "there is no TLS"},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "eu.example.net:7947"}, "there is no TLS"},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "10.0.0.1:7947"}, "there is no TLS"},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "127.0.0.1"}, "ListenAddr"},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "127.0.0.1:http"}, "ListenAddr"},
		{natsbus.EmbeddedOptions{Name: "eu", ListenAddr: "127.0.0.1:65536"}, "ListenAddr"},
	} {
		_, err := natsbus.NewEmbedded(tt.opts)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", tt.opts, err, tt.want)
		}
	}
}

// A server notices by its pings that its peer is frozen, and is joined again.
func TestGatewayFrozen(t *testing.T) {
	t.Parallel()
	eu := startRegion(t, natsbus.EmbeddedOptions{Name: "eu"})
	p := startNATS(t, "127.0.0.1:0,"+eu.GatewayAddr().String())
	us, _ := startBus(t, natsbus.Options{URLs: []string{p.url()}, Region: "us"})
	bothWays(t, eu.bus, us)

	p.signal(t, syscall.SIGSTOP)
	await(t, "the frozen peer is noticed", func() bool { return !linked(eu, "us") })
	p.signal(t, syscall.SIGCONT)
	bothWays(t, eu.bus, us)
}
