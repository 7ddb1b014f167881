package natsbus_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/sync/natsbus"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/meters"
)

// forgedGateway answers where the gateway of a region should be, and keeps every byte that
// it receives; with a certificate it does so inside TLS as well.
type forgedGateway struct {
	net.Listener
	mu       sync.Mutex
	received bytes.Buffer
	failed   int // handshakes
	calls    int
}

func forgeGateway(t *testing.T, certificate *tls.Config) *forgedGateway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forgedGateway{Listener: l}
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			ended.Go(func() { f.answer(c, certificate) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		ended.Wait()
	})
	return f
}

// answer greets as the gateway of us and reads what comes.
func (f *forgedGateway) answer(c net.Conn, certificate *tls.Config) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	if certificate != nil {
		s := tls.Server(recorded{c, f}, certificate)
		if err := s.Handshake(); err != nil {
			f.mu.Lock()
			f.failed++
			f.mu.Unlock()
			return
		}
		c = s
	}
	_, _ = fmt.Fprintf(c, "INFO {\"server_id\":\"forged\",\"server_name\":\"us\",\"version\":\"2.15.2\",\"proto\":1,\"headers\":true,"+
		"\"max_payload\":1048576,\"gateway\":\"us\",\"gateway_url\":%q,\"gateway_urls\":[%q],\"gateway_nrp\":true}\r\n",
		f.Addr().String(), f.Addr().String())
	_, _ = io.Copy(f, c)
}

func (f *forgedGateway) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received.Write(b)
}

func (f *forgedGateway) state() (received string, calls, failed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received.String(), f.calls, f.failed
}

// recorded keeps what is read from a connection.
type recorded struct {
	net.Conn
	f *forgedGateway
}

func (r recorded) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	_, _ = r.f.Write(b[:n])
	return n, err
}

// TestForgedGatewayLearnsNothing: whoever answers at a region's address without the key gets
// the beginning of a handshake and no message of NATS, whatever certificate they show.
func TestForgedGatewayLearnsNothing(t *testing.T) {
	t.Parallel()
	for name, certificate := range map[string]*tls.Config{
		"without TLS":       nil,
		"of another key":    gatewayTLS(t, 2),
		"of another region": otherCluster(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := forgeGateway(t, certificate)
			log, c := &capture.Log{}, meters.New()
			eu := startRegion(t, natsbus.EmbeddedOptions{
				Name: "eu", TLS: gatewayTLS(t, 1), Logger: logger(log), Meter: c.Meter,
				Remotes: []natsbus.Remote{{Name: "us", Addr: f.Addr().String()}},
			})
			await(t, "two calls fail", func() bool {
				_, calls, _ := f.state()
				return calls >= 3 && c.Of(t, "regiond.bus.server.errors") >= 2
			})
			received, _, failed := f.state()
			for _, word := range []string{"CONNECT", "INFO", "pass", "regiond/", "rl.v1", "\x01\x01\x01\x01\x01\x01\x01\x01"} {
				if strings.Contains(received, word) {
					t.Errorf("it received %q in %d bytes", word, len(received))
				}
			}
			if certificate != nil && failed == 0 {
				t.Error("a handshake succeeded")
			}
			if linked(eu, "us") || !strings.Contains(log.String(), "TLS gateway handshake error") {
				t.Errorf("it is a peer, or nothing is logged:\n%s", log)
			}
		})
	}
}

func otherCluster(t *testing.T) *tls.Config {
	t.Helper()
	c, err := natsbus.GatewayTLS("staging", [][]byte{bytes.Repeat([]byte{1}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A former member, with a key that is no longer accepted, and a stranger without
// any certificate get no further than the handshake.
func TestFormerMember(t *testing.T) {
	t.Parallel()
	eu := startRegion(t, natsbus.EmbeddedOptions{Name: "eu", TLS: gatewayTLS(t, 2)})
	former := gatewayTLS(t, 1)
	former.RootCAs = gatewayTLS(t, 2).RootCAs // it recorded the certificate of a server
	stranger := former.Clone()
	stranger.Certificates = nil
	for name, config := range map[string]*tls.Config{"former member": former, "stranger": stranger} {
		c, err := tls.Dial("tcp", eu.GatewayAddr().String(), config)
		if err != nil {
			continue // TLS 1.3 lets a client finish before the server has checked it
		}
		_ = c.SetDeadline(time.Now().Add(timeout))
		if got, err := io.ReadAll(c); err == nil || len(got) > 0 {
			t.Errorf("a %s received %q, %v", name, got, err)
		}
		_ = c.Close()
	}
}

// TestGatewayHandshakeInTime: who does not end a handshake is cut.
func TestGatewayHandshakeInTime(t *testing.T) {
	t.Parallel()
	eu := startRegion(t, natsbus.EmbeddedOptions{Name: "eu", TLS: gatewayTLS(t, 1)})
	for _, sent := range []string{"", "\x16", "\x16\x03\x01\x02\x00\x01"} {
		c, err := net.Dial("tcp", eu.GatewayAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, sent); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err = io.ReadAll(c)
		if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
			t.Errorf("after %q the connection stands for five seconds", sent)
		}
	}
}

// TestKeysAreReplaced goes from key 1 to key 2 in three steps, server by server, with a restart
// of one server between any two: at no time is a pair unable to connect.
func TestKeysAreReplaced(t *testing.T) {
	t.Parallel()
	keys := [][]byte{{1}, {1, 2}, {2, 1}, {2}}
	eu := startRegion(t, natsbus.EmbeddedOptions{Name: "eu", TLS: gatewayTLS(t, 1)})
	for step := 1; step < len(keys); step++ {
		for _, us := range []int{step - 1, step} { // eu is a step ahead of us, then not
			if us == step-1 {
				if err := eu.SetTLS(gatewayTLS(t, keys[step]...)); err != nil {
					t.Fatal(err)
				}
			}
			r := startRegion(t, natsbus.EmbeddedOptions{
				Name: "us", TLS: gatewayTLS(t, keys[us]...), Remotes: []natsbus.Remote{eu.remote("eu")},
			})
			r.receives(t, eu)
			eu.receives(t, r)
			r.stop()
			await(t, "us is gone", func() bool { return !linked(eu, "us") })
		}
	}
}

// TestKeyIsRemoved: a connection ends when the key goes under which it was made, in both directions, and its peer does not come
// back with it. One under a key that stays is not touched; one that was made under the former key by a peer that has the
// new one too is made anew.
func TestKeyIsRemoved(t *testing.T) {
	t.Parallel()
	eu := startRegion(t, natsbus.EmbeddedOptions{Name: "eu", TLS: gatewayTLS(t, 1, 2)})
	join := func(name string, keys ...byte) *region {
		r := startRegion(t, natsbus.EmbeddedOptions{Name: name, TLS: gatewayTLS(t, keys...), Remotes: []natsbus.Remote{eu.remote("eu")}})
		await(t, name+" has joined", func() bool { return linked(eu, name) && linked(r, "eu") })
		return r
	}
	thief, us, ap := join("thief", 1), join("us", 1, 2), join("ap", 2, 1)
	if err := us.SetTLS(gatewayTLS(t, 2)); err != nil { // which cuts what eu made under key 1
		t.Fatal(err)
	}
	if err := eu.SetTLS(gatewayTLS(t, 2, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, "us is linked under the new key", func() bool { return linked(eu, "us") && linked(us, "eu") })
	late := join("late", 2, 1) // both sides show certificates of key 2
	stand := eu.Connections("late")
	if len(stand) != 2 || len(eu.Connections("thief")) != 2 {
		t.Fatalf("eu has connections %v and %v, want two with each", stand, eu.Connections("thief"))
	}
	if err := eu.SetTLS(gatewayTLS(t, 2)); err != nil {
		t.Fatal(err)
	}
	if now := eu.Connections("late"); !slices.Equal(slices.Sorted(slices.Values(now)), slices.Sorted(slices.Values(stand))) {
		t.Errorf("a connection under the key that stays was made anew: %v, then %v", stand, now)
	}
	for _, r := range []*region{us, ap, late} {
		eu.receives(t, r)
		r.receives(t, eu)
	}
	for _, r := range []*region{ap, late} {
		if err := r.SetTLS(gatewayTLS(t, 2)); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all have cut the former member", func() bool {
		cut := true
		for _, r := range []*region{eu, us, ap, late} {
			cut = cut && len(r.Connections("thief")) == 0 && len(thief.Connections(r.name)) == 0
		}
		return cut
	})
	if received := converse(t, eu, us, thief); received["rl.v1.usage.thief"] || linked(eu, "thief") {
		t.Errorf("the former member is back: %v", received)
	}
}

// A clock that is wrong by decades breaks no connection: nothing else about a certificate
// depends on the time.
func TestCertificatesDoNotExpire(t *testing.T) {
	c := gatewayTLS(t, 1)
	leaf, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, year := range []int{1971, 2026, 2100, 9999} {
		_, err := leaf.Verify(x509.VerifyOptions{
			Roots: gatewayTLS(t, 1).RootCAs, DNSName: c.ServerName, CurrentTime: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if err != nil {
			t.Errorf("in %d: %v", year, err)
		}
	}
}
