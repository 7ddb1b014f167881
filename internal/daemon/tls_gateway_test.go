package daemon

import (
	"bytes"
	"crypto/tls"
	"errors"
	"path/filepath"
	"testing"

	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/keyfile"
)

// TestGatewayCertificates: gateways with the certificates that the topology names accept each other, and none with
// certificates of a shared key.
func TestGatewayCertificates(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t, "gateways")
	files := &region.TLS{CAFile: filepath.Join(dir, "ca.PEM"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	cert, key := ca.Issue(t, "eu")
	write(t, files.CAFile, ca.PEM)
	write(t, files.CertFile, cert)
	write(t, files.KeyFile, key)
	prod := &region.Topology{Cluster: "prod"}
	trust := func(c *config) *tls.Config {
		t.Helper()
		config, err := gatewayTLS(c)
		if err != nil {
			t.Fatal(err)
		}
		config.ServerName = "127.0.0.1" // as of a remote's address
		return config
	}
	named := trust(&config{topology: prod, region: &region.Region{NATS: region.NATS{TLS: files}}, keys: &keyfile.Keys{}})
	derived := trust(&config{topology: prod, region: &region.Region{}, keys: &keyfile.Keys{Shared: [][]byte{bytes.Repeat([]byte{1}, 32)}}})
	handshake := func(server, client *tls.Config) error {
		l, err := tls.Listen("tcp", "127.0.0.1:0", server)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		accepted := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				err = conn.(*tls.Conn).HandshakeContext(t.Context())
				_ = conn.Close()
			}
			accepted <- err
		}()
		conn, err := tls.Dial("tcp", l.Addr().String(), client)
		if err == nil {
			defer conn.Close()
		}
		return errors.Join(err, <-accepted)
	}
	for what, row := range map[string]struct {
		server, client *tls.Config
		meet           bool
	}{
		"named":               {named, named, true},
		"derived calls named": {named, derived, false}, "named calls derived": {derived, named, false},
	} {
		if err := handshake(row.server, row.client); (err == nil) != row.meet {
			t.Errorf("%s: %v", what, err)
		}
	}
}
