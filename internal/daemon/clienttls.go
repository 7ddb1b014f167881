package daemon

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"

	"github.com/regiond/regiond/region"
)

// clientTLS is how to dial something that the topology gives certificates for. The
// authorities are read once, the certificate to show at each handshake.
func clientTLS(t *region.TLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pool, err := readPool(t.CAFile)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	if t.CertFile != "" {
		p := &clientPair{certFile: t.CertFile, keyFile: t.KeyFile}
		if err := p.read(); err != nil {
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			// What cannot be read leaves the last one that could: the key of a renewed
			// certificate may not be there yet. The reload of that change says so.
			_ = p.read()
			return p.good.Load(), nil
		}
	}
	return c, nil
}

// clientPair is a certificate in files that are replaced before it runs out. It is
// safe for concurrent use.
type clientPair struct {
	certFile, keyFile string
	good              atomic.Pointer[tls.Certificate] // the last that could be read
}

func (p *clientPair) read() error {
	cert, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err == nil {
		p.good.Store(&cert)
	}
	return err
}

// checkClientTLS reads what a region dials with, so that a mistake is told at a reload
// and not at the first handshake that needs it.
func checkClientTLS(top *region.Topology, r *region.Region) error {
	if _, err := clientTLS(r.Redis.TLS); err != nil {
		return fmt.Errorf("region %s: redis: %w", r.Name, err)
	}
	if len(top.Regions) == 1 && r.Gossip == nil { // nobody to reach over NATS
		return nil
	}
	if _, err := clientTLS(r.NATS.TLS); err != nil {
		return fmt.Errorf("region %s: nats: %w", r.Name, err)
	}
	return nil
}
