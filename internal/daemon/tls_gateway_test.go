package daemon

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/keyfile"
	"github.com/regiond/regiond/sync/natsbus"
)

// TestGatewayCertificates: gateways with the certificates that the topology names connect to
// each other, and not to one with certificates of a shared key.
func TestGatewayCertificates(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t, "gateways")
	files := &region.TLS{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	cert, key := ca.issue(t, "eu")
	write(t, files.CAFile, ca.pem)
	write(t, files.CertFile, cert)
	write(t, files.KeyFile, key)
	named := &config{topology: &region.Topology{Cluster: "prod"}, region: &region.Region{NATS: region.NATS{TLS: files}}, keys: &keyfile.Keys{}}
	derived := &config{
		topology: named.topology, region: &region.Region{},
		keys: &keyfile.Keys{Shared: [][]byte{bytes.Repeat([]byte{1}, 32)}},
	}
	serve := func(name string, c *config, remotes ...natsbus.Remote) *natsbus.Embedded {
		t.Helper()
		trust, err := gatewayTLS(c)
		if err != nil {
			t.Fatal(err)
		}
		e, err := natsbus.NewEmbedded(natsbus.EmbeddedOptions{Name: name, ListenAddr: "127.0.0.1:0", TLS: trust, Remotes: remotes})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- e.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		<-e.Ready()
		return e
	}
	eu := serve("eu", named)
	at := natsbus.Remote{Name: "eu", Addr: eu.GatewayAddr().String()}
	serve("foreign", derived, at)
	us := serve("us", named, at)
	linked := func(e *natsbus.Embedded, name string) bool {
		return slices.Contains(e.Peers(), natsbus.GatewayState{Name: name, Inbound: true, Outbound: true})
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); !linked(eu, "us") || !linked(us, "eu"); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not connected: %+v and %+v", eu.Peers(), us.Peers())
		}
	}
	if slices.ContainsFunc(eu.Peers(), func(p natsbus.GatewayState) bool { return p.Name == "foreign" && (p.Inbound || p.Outbound) }) {
		t.Errorf("a gateway of another authority is a peer: %+v", eu.Peers())
	}
}
