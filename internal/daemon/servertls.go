package daemon

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/regiond/regiond/region"
)

// serverTLS is the data listener's certificate, which a reload may renew.
type serverTLS struct {
	config atomic.Pointer[tls.Config]
}

func (s *serverTLS) listener(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.config.Load(), nil },
	})
}

// readServerTLS returns nil when the topology names no certificate.
func readServerTLS(a region.Access) (*tls.Config, error) {
	if a.CertFile == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the data listener's certificate: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if a.ClientCAFile == "" {
		return c, nil
	}
	if c.ClientCAs, err = readPool(a.ClientCAFile); err != nil {
		return nil, err
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven // a bearer token is as good, where tokens are configured
	return c, nil
}
