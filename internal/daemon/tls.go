package daemon

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/regiond/regiond/internal/base/files"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/sync/natsbus"
)

// tlsListener serves each connection with the configuration in force when it arrives.
func tlsListener(l net.Listener, inForce func() *tls.Config) net.Listener {
	return tls.NewListener(l, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return inForce(), nil },
	})
}

// readServerTLS returns nil when the topology names no certificate for a listener.
func readServerTLS(listener, certFile, keyFile, clientCAFile string) (*tls.Config, error) {
	if certFile == "" {
		return nil, nil
	}
	cert, err := files.Pair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the %s listener's certificate: %w", listener, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if clientCAFile == "" {
		return c, nil
	}
	if c.ClientCAs, err = files.Authorities(clientCAFile); err != nil {
		return nil, err
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven // a bearer token does as well, where tokens are configured
	return c, nil
}

// clientTLS is how to dial something that the topology gives certificates for. The
// authorities are read once, the certificate to show at each handshake.
func clientTLS(t *region.TLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		var err error
		if c.RootCAs, err = files.Authorities(t.CAFile); err != nil {
			return nil, err
		}
	}
	if t.CertFile != "" {
		var good atomic.Pointer[tls.Certificate] // the last that could be read
		read := func() error {
			cert, err := files.Pair(t.CertFile, t.KeyFile)
			if err == nil {
				good.Store(&cert)
			}
			return err
		}
		if err := read(); err != nil {
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			// What cannot be read leaves the last one that could: the key of a renewed
			// certificate may not be there yet. The reload of that change reports it.
			_ = read()
			return good.Load(), nil
		}
	}
	return c, nil
}

// gatewayTLS is how the gateways of embedded NATS servers know each other: by the
// certificates that the topology names, or by some derived from the shared keys; nil
// without either.
func gatewayTLS(c *config) (*tls.Config, error) {
	if c.region.NATS.TLS == nil {
		if len(c.keys.Shared) == 0 {
			return nil, nil
		}
		return natsbus.GatewayTLS(c.topology.Cluster, c.keys.Shared)
	}
	t, err := clientTLS(c.region.NATS.TLS)
	if err != nil {
		return nil, err
	}
	t.ClientCAs, t.ClientAuth = t.RootCAs, tls.RequireAndVerifyClientCert
	t.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.GetClientCertificate(nil) }
	return t, nil
}
