package natsbus

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// gatewayName is the name in all certificates of GatewayTLS. Who has the key may be any
// server of the cluster.
const gatewayName = "gateway.regiond.internal"

// GatewayTLS returns the TLS of gateways between processes that share keys of 16 bytes or
// more and the name of their cluster: each key gives a certificate authority, all of which
// are accepted, and the first signs a certificate of this process. Nothing of a key
// travels. Certificates do not expire before their keys are replaced, since clocks may be wrong.
//
//	key, cluster ── HKDF ──▶ ed25519 key of the authority ── signs ──▶ a new key of this process
func GatewayTLS(cluster string, keys [][]byte) (*tls.Config, error) {
	if len(keys) == 0 {
		return nil, errors.New("certificates of gateways: there is no key to derive them from")
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: gatewayName,
		RootCAs:    x509.NewCertPool(),
		ClientAuth: tls.RequireAndVerifyClientCert,
	}
	c.ClientCAs = c.RootCAs
	for i, key := range keys {
		seed, err := hkdf.Key(sha256.New, key, []byte(cluster), "regiond nats gateway authority v1", ed25519.SeedSize)
		if err != nil {
			return nil, fmt.Errorf("certificates of gateways: derive key %d: %w", i+1, err)
		}
		signer := ed25519.NewKeyFromSeed(seed)
		authority, err := newAuthority(signer)
		if err != nil {
			return nil, fmt.Errorf("certificates of gateways: key %d: %w", i+1, err)
		}
		c.RootCAs.AddCert(authority)
		if i > 0 {
			continue
		}
		cert, err := newCertificate(authority, signer)
		if err != nil {
			return nil, fmt.Errorf("certificate of this gateway: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

// newAuthority signs its own certificate: peers have the same key, name and key id, and
// need no copy of it.
func newAuthority(key ed25519.PrivateKey) (*x509.Certificate, error) {
	id := sha256.Sum256(key.Public().(ed25519.PublicKey))
	template := certificate()
	template.Subject = pkix.Name{CommonName: "regiond gateways"}
	template.SubjectKeyId = id[:20]
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// newCertificate makes a key that no other process has.
func newCertificate(authority *x509.Certificate, signer ed25519.PrivateKey) (tls.Certificate, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := certificate()
	template.Subject, template.DNSNames = pkix.Name{CommonName: gatewayName}, []string{gatewayName}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, public, signer)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// certificate is what both kinds have in common. RFC 5280 calls its end "no well-defined
// expiration date".
func certificate() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		BasicConstraintsValid: true,
	}
}
