package natsbus_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/sync/natsbus"
)

// link is a line that can be cut: then bytes wait, and nobody is told.
type link struct {
	listener net.Listener
	target   string

	mu   sync.Mutex
	up   *sync.Cond
	cut  bool
	over bool
	open map[net.Conn]bool
	wg   sync.WaitGroup
}

func newLink(t *testing.T) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{listener: l, open: make(map[net.Conn]bool)}
	k.up = sync.NewCond(&k.mu)
	t.Cleanup(k.close)
	return k
}

func (k *link) addr() string { return k.listener.Addr().String() }

// to sends what arrives on to target.
func (k *link) to(target string) {
	k.target = target
	k.wg.Go(func() {
		for {
			c, err := k.listener.Accept()
			if err != nil {
				return
			}
			k.wg.Go(func() { k.serve(c) })
		}
	})
}

func (k *link) serve(c net.Conn) {
	if !k.keep(c) {
		return
	}
	s, err := net.Dial("tcp", k.target)
	if err != nil {
		k.drop(c)
		return
	}
	if !k.keep(s) {
		k.drop(c)
		return
	}
	k.wg.Go(func() { k.copy(s, c) })
	k.copy(c, s)
}

// copy ends both when one has ended.
func (k *link) copy(to, from net.Conn) {
	defer k.drop(to)
	defer k.drop(from)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !k.wait() {
			return
		}
		if _, writeErr := to.Write(buf[:n]); writeErr != nil || err != nil {
			return
		}
	}
}

// wait returns once the line is whole; false when it is gone.
func (k *link) wait() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.cut && !k.over {
		k.up.Wait()
	}
	return !k.over
}

func (k *link) set(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
	k.up.Broadcast()
}

func (k *link) keep(c net.Conn) bool {
	if !k.wait() {
		_ = c.Close()
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[c] = true
	return true
}

func (k *link) drop(c net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = c.Close()
	delete(k.open, c)
}

func (k *link) close() {
	k.mu.Lock()
	k.over = true
	k.up.Broadcast()
	_ = k.listener.Close()
	for c := range k.open {
		_ = c.Close()
	}
	k.mu.Unlock()
	k.wg.Wait()
}

// Servers that lose each other without a word notice by their pings, and meet
// again by themselves.
func TestGatewayCutAndHealed(t *testing.T) {
	toEU, toUS := newLink(t), newLink(t)
	eu := startRegion(t, natsbus.EmbeddedOptions{
		Name: "eu", Advertise: toEU.addr(), Remotes: []natsbus.Remote{{Name: "us", Addr: toUS.addr()}},
	})
	us := startRegion(t, natsbus.EmbeddedOptions{
		Name: "us", Advertise: toUS.addr(), Remotes: []natsbus.Remote{{Name: "eu", Addr: toEU.addr()}},
	})
	toEU.to(eu.GatewayAddr().String())
	toUS.to(us.GatewayAddr().String())
	eu.hears(t, us)
	us.hears(t, eu)

	toEU.set(true)
	toUS.set(true)
	cut := time.Now()
	await(t, "both notice", func() bool { return !linked(eu, "us") && !linked(us, "eu") })
	t.Logf("noticed after %v", time.Since(cut).Round(time.Millisecond))
	toEU.set(false)
	toUS.set(false)
	healed := time.Now()
	eu.hears(t, us)
	us.hears(t, eu)
	t.Logf("heard both ways %v after it was healed", time.Since(healed).Round(time.Millisecond))
}

// With TLS both ends show a certificate, and a server without one is not heard.
func TestGatewayTLS(t *testing.T) {
	good, other := newTLS(t), newTLS(t)
	eu := startRegion(t, natsbus.EmbeddedOptions{Name: "eu", TLS: good})
	us := startRegion(t, natsbus.EmbeddedOptions{Name: "us", TLS: good.Clone(), Remotes: []natsbus.Remote{eu.remote("eu")}})
	c := newCounts(t)
	bad := startRegion(t, natsbus.EmbeddedOptions{
		Name: "bad", TLS: other, Remotes: []natsbus.Remote{eu.remote("eu"), us.remote("us")}, Meter: c.meters.Meter("bus"),
	})
	await(t, "a handshake fails", func() bool { return c.of("regiond.bus.server.errors", "") >= 2 })
	if heard := converse(t, eu, us, bad); heard["rl.v1.usage.bad"] || heard["to bad"] {
		t.Errorf("a message crossed to or from the one with another certificate: %v", heard)
	}
}

// newTLS is a certificate that trusts itself alone.
func newTLS(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "regiond"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13,
	}
}
