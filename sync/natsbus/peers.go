package natsbus

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"sync"
	"time"
)

// maxPeers bounds the certificates that are remembered. Each process makes one at its start and at each reload; with more, all
// are forgotten, and those that stand are cut by the next reload and connect again.
const maxPeers = 4096

// peers are the certificates that servers have shown, on either side of a connection. The zero value is ready.
type peers struct {
	mu    sync.Mutex
	roots *x509.CertPool        // in force
	shown map[string]shownChain // by the pin of the first certificate
}

type shownChain struct {
	chain []*x509.Certificate
	at    time.Time
}

// watch puts the authorities of c in force, and returns c with a check of each connection by those that are in force then:
// a handshake can begin before a reload and end after it.
func (p *peers) watch(c *tls.Config) *tls.Config {
	if c == nil {
		return nil
	}
	p.mu.Lock()
	p.roots = c.RootCAs
	p.mu.Unlock()
	c = c.Clone()
	c.VerifyConnection = p.admit
	return c
}

func (p *peers) admit(s tls.ConnectionState) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := shownChain{s.PeerCertificates, time.Now()}
	if err := one.verify(p.roots); err != nil {
		return err
	}
	if p.shown == nil || len(p.shown) >= maxPeers {
		p.shown = map[string]shownChain{}
	}
	sum := sha256.Sum256(one.chain[0].RawSubjectPublicKeyInfo)
	p.shown[hex.EncodeToString(sum[:])] = one
	return nil
}

// verify asks whether an authority vouched for the certificate when it was shown: that it has run out since cuts nothing.
func (s shownChain) verify(roots *x509.CertPool) error {
	between := x509.NewCertPool()
	for _, c := range s.chain[1:] {
		between.AddCert(c)
	}
	_, err := s.chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: s.at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}

// pins are the certificates of authorities in force, as nats-server names them; never nil. The others are forgotten.
func (p *peers) pins() map[string]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	pins := map[string]struct{}{}
	for pin, one := range p.shown {
		if one.verify(p.roots) != nil {
			delete(p.shown, pin)
			continue
		}
		pins[pin] = struct{}{}
	}
	return pins
}
