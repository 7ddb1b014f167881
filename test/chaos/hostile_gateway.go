//go:build linux

package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/sync/natsbus"
)

// gatewayPort is where an embedded NATS server waits for its peers: after that of gossip.
const gatewayPort = gossipPort + 1

// ForgedGateway kills a region's regiond, and has somebody answer in its place where the others
// expect its NATS: in the clear, and by TLS with a certificate of their own. Healed, it starts
// again. It needs Options.Embedded.
func (w *World) ForgedGateway(name string) Fault {
	r := w.region(name)
	forged := &forgedGateway{name: name, addr: at(r.addr, gatewayPort)}
	f := w.hostile("a forged gateway in place of "+name, []string{name}, func(ctx context.Context) error {
		return forged.serve(ctx, r)
	}, forged.judge)
	f.Inject = before(f.Inject, func() error { r.regiond.kill(); return nil })
	return f.then(r.regiond.start)
}

// before has something done before.
func before(do, first func() error) func() error {
	return func() error { return errors.Join(first(), do()) }
}

// forgedGateway keeps every byte that it receives, inside TLS as well.
type forgedGateway struct {
	name, addr string

	mu            sync.Mutex
	received      bytes.Buffer
	calls, agreed int // connections, and handshakes that were completed
}

func (f *forgedGateway) serve(ctx context.Context, r *Region) error {
	other, err := base64.StdEncoding.DecodeString(newKey())
	if err != nil {
		return err
	}
	certificate, err := natsbus.GatewayTLS(cluster, [][]byte{other})
	if err != nil {
		return err
	}
	certificate = &tls.Config{Certificates: certificate.Certificates, MinVersion: tls.VersionTLS12} // it takes whoever comes
	l, err := r.ns.Listen(f.addr)
	if err != nil {
		return fmt.Errorf("a forged gateway: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var answers sync.WaitGroup
	defer answers.Wait()
	for n := 0; ; n++ {
		c, err := l.Accept()
		if err != nil {
			return nil // it was closed
		}
		answers.Go(func() { f.answer(c, n%2 == 0, certificate) })
	}
}

// answer greets as the gateway of the region would, and reads what comes.
func (f *forgedGateway) answer(c net.Conn, plain bool, certificate *tls.Config) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	if !plain {
		s := tls.Server(tapped{c, f}, certificate)
		if s.HandshakeContext(context.Background()) != nil { // the deadline is the connection's
			return
		}
		f.mu.Lock()
		f.agreed++
		f.mu.Unlock()
		c = s
	}
	_, _ = fmt.Fprintf(c, "INFO {\"server_id\":\"forged\",\"server_name\":%q,\"version\":\"2.15.2\",\"proto\":1,\"headers\":true,"+
		"\"max_payload\":1048576,\"gateway\":%q,\"gateway_url\":%q,\"gateway_urls\":[%q],\"gateway_nrp\":true}\r\n", f.name, f.name, f.addr, f.addr)
	_, _ = io.Copy(f, c)
}

// Write keeps what was received.
func (f *forgedGateway) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received.Write(b)
}

// tapped keeps what is read from a connection.
type tapped struct {
	net.Conn
	f *forgedGateway
}

// Read implements net.Conn.
func (t tapped) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	_, _ = t.f.Write(b[:n])
	return n, err
}

// judge objects to anything but the beginnings of handshakes.
func (f *forgedGateway) judge(a *Achieved) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	a.Beside = fmt.Sprintf("%d connections, %d handshakes, %d bytes", f.calls, f.agreed, f.received.Len())
	if f.calls < 4 {
		return fmt.Errorf("hostile: only %d connections came", f.calls)
	}
	for _, word := range []string{"CONNECT", "INFO", "pass", "regiond/", "rl.v1"} {
		if strings.Contains(f.received.String(), word) {
			return fmt.Errorf("hostile: the forged gateway received %q, in %s", word, a.Beside)
		}
	}
	if f.agreed > 0 {
		return fmt.Errorf("hostile: %s", a.Beside)
	}
	return nil
}
