package daemon

import (
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regiond/regiond/region"
)

// TestRenewedClientCertificate: each connection shows what is in the files, so that no
// restart is needed before the old one runs out; half a renewal leaves the old one.
func TestRenewedClientCertificate(t *testing.T) {
	dir, servers, clients := t.TempDir(), newAuthority(t, "servers"), newAuthority(t, "clients")
	files := &region.TLS{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	write(t, files.CAFile, servers.pem)
	cert, key := clients.issue(t, "one")
	write(t, files.CertFile, cert)
	if _, err := clientTLS(files); err == nil {
		t.Error("a certificate without its key is found out at a handshake only")
	}
	write(t, files.KeyFile, key)
	config, err := clientTLS(files)
	if err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		t.Helper()
		pair, err := tls.X509KeyPair(join(servers.issue(t, "redis")))
		if err != nil {
			t.Fatal(err)
		}
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.pool,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		name := make(chan string, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				name <- err.Error()
				return
			}
			defer conn.Close()
			if err := conn.(*tls.Conn).HandshakeContext(t.Context()); err != nil {
				name <- err.Error()
				return
			}
			name <- conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
		}()
		conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: config}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return <-name
	}
	if got := shown(); got != "one" {
		t.Errorf("at first it shows %q", got)
	}
	cert, key = clients.issue(t, "two")
	put(t, files.CertFile, cert)
	if got := shown(); got != "one" {
		t.Errorf("with the new certificate and the old key it shows %q", got)
	}
	put(t, files.KeyFile, key)
	if got := shown(); got != "two" {
		t.Errorf("renewed it shows %q", got)
	}
}

// TestHalfARenewalIsTold: a certificate that does not belong to its key is named by the
// reload that finds it, not only by whoever is shown the old one when it has run out.
func TestHalfARenewalIsTold(t *testing.T) {
	dir, clients := t.TempDir(), newAuthority(t, "clients")
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert, key := clients.issue(t, "one")
	write(t, certFile, cert)
	write(t, keyFile, key)
	p := start(t, replace(t, town, "STORE", fmt.Sprintf("{addrs: [%q], tls: {cert_file: %s, key_file: %s}}", nobody(t), certFile, keyFile)))
	cert, key = clients.issue(t, "two")
	put(t, certFile, cert)
	line := p.log.await(t, "reload: the configuration in force stays", 1)
	if why := fmt.Sprint(line["error"]); !strings.HasPrefix(why, "region town: redis: read certificate: ") {
		t.Errorf("the log says %v", line)
	}
	put(t, keyFile, key)
	p.log.await(t, "reloaded", 1)
	if n := len(p.log.lines("these changes need a restart")); n != 0 {
		t.Errorf("a restart is asked for %d times", n)
	}
}
