package daemon

import (
	"crypto/tls"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/test/authority"
	"github.com/regiond/regiond/test/capture"
)

// certifier is an authority, and the clients that trust it.
type certifier struct{ *authority.Authority }

func newAuthority(t *testing.T, name string) *certifier {
	t.Helper()
	return &certifier{authority.New(t, name)}
}

// client is one that trusts this authority, and shows a certificate of a gateway from who,
// where there is one, and remembers sessions.
func (a *certifier) client(t *testing.T, url string, who *certifier) client {
	t.Helper()
	return a.clientNamed(t, url, who, "gateway")
}

func (a *certifier) clientNamed(t *testing.T, url string, who *certifier, name string) client {
	t.Helper()
	return newClient(t, url, &http.Transport{TLSClientConfig: a.config(t, who, name), ForceAttemptHTTP2: true})
}

// config is of a client that trusts this authority, and shows a certificate of that name from who, where there is one.
func (a *certifier) config(t *testing.T, who *certifier, name string) *tls.Config {
	t.Helper()
	config := &tls.Config{RootCAs: a.Pool, ClientSessionCache: tls.NewLRUClientSessionCache(8), MinVersion: tls.VersionTLS12}
	if who != nil {
		pair, err := tls.X509KeyPair(join(who.Issue(t, name)))
		if err != nil {
			t.Fatal(err)
		}
		// Shown whether or not the server says that it knows the authority.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config
}

func join(cert, key string) ([]byte, []byte) { return []byte(cert), []byte(key) }

// guarded is a town behind certificates and tokens, and the files that say so.
type guarded struct {
	*program
	server, clients *certifier
	dir             string
}

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	return startGuardedWith(t, tokenLine("ci", "data-secret"), func(_, topology string) string { return topology })
}

// startGuardedWith is startGuarded with other tokens, flags, and what change makes of its topology.
func startGuardedWith(t *testing.T, tokens string, change func(dir, topology string) string, flags ...string) *guarded {
	t.Helper()
	g := &guarded{server: newAuthority(t, "servers"), clients: newAuthority(t, "clients"), dir: t.TempDir()}
	cert, key := g.server.Issue(t, "regiond one")
	adminCert, adminKey := g.server.Issue(t, "admin one")
	for name, content := range map[string]string{
		"cert.pem": cert, "key.pem": key, "clients.PEM": g.clients.PEM,
		"admin-cert.pem": adminCert, "admin-key.pem": adminKey,
		"tokens": tokens, "admin-tokens": tokenLine("ops", "admin-secret"),
	} {
		write(t, filepath.Join(g.dir, name), content)
	}
	g.program = start(t, change(g.dir, inMemory()+strings.ReplaceAll(`access:
  cert_file: DIR/cert.pem
  key_file: DIR/key.pem
  client_ca_file: DIR/clients.PEM
  tokens_file: DIR/tokens
  admin_tokens_file: DIR/admin-tokens
  admin_cert_file: DIR/admin-cert.pem
  admin_key_file: DIR/admin-key.pem
  admin_client_ca_file: DIR/clients.PEM
  admin_client_names: [operator]
`, "DIR", g.dir)), flags...)
	g.url = strings.Replace(g.url, "http:", "https:", 1)
	return g
}

// body is a check of nobody in particular; what it gets is about who asks.
const body = `{"tenant":"acme"}`

// TestWhoMayAsk: on each listener a certificate of its authority and list does as well as a token, and any other does nothing.
// Health needs neither. A stranger's certificate does not get as far as HTTP, nor does plain HTTP.
func TestWhoMayAsk(t *testing.T) {
	g := startGuarded(t)
	for i, c := range []struct {
		url, path   string
		name, token string // of a certificate, and a secret; "" for none
		status      int
	}{
		{g.url, "/v1/check", "", "", 401},
		{g.url, "/v1/check", "gateway", "", 200},
		{g.url, "/v1/check", "", "data-secret", 200},
		{g.url, "/v1/check", "", "admin-secret", 401}, // an operator is no gateway
		{g.admin.url, "/readyz", "", "", 200},
		{g.admin.url, "/v1/regions", "", "", 401},
		{g.admin.url, "/v1/regions", "gateway", "", 401},
		{g.admin.url, "/metrics", "gateway", "", 401},
		{g.admin.url, "/v1/regions", "operator", "", 200},
		{g.admin.url, "/metrics", "operator", "", 200},
		{g.admin.url, "/v1/regions", "gateway", "admin-secret", 200},
		{g.admin.url, "/v1/regions", "", "data-secret", 401},
	} {
		who, method := g.clients, http.MethodGet
		if c.name == "" {
			who = nil
		}
		if c.url == g.url {
			method = http.MethodPost
		}
		var fields []string
		if c.token != "" {
			fields = []string{"Authorization: Bearer " + c.token}
		}
		if a := g.server.clientNamed(t, c.url, who, c.name).ask(t, method, c.path, body, fields...); a.status != c.status {
			t.Errorf("%d: %s of %q with %v: %d, want %d", i, c.path, c.name, fields, a.status, c.status)
		}
	}
	for url, path := range map[string]string{g.url: "/v1/check", g.admin.url: "/readyz"} {
		stranger := g.server.clientNamed(t, url, newAuthority(t, "strangers"), "operator")
		if a, err := stranger.try(t.Context(), http.MethodPost, path, body); err == nil {
			t.Errorf("a stranger's certificate gets %d", a.status)
		}
		plain := newClient(t, strings.Replace(url, "https:", "http:", 1), nil)
		if a, err := plain.try(t.Context(), http.MethodPost, path, body); err == nil && a.status != http.StatusBadRequest {
			t.Errorf("plain HTTP gets %d", a.status)
		}
	}
}

// TestCertificatesNeedARestart: a listener that was opened without TLS sees no certificate until the restart that the log
// asks for. To ask for some would refuse all traffic, so the data listener does not; the admin listener refuses operators.
func TestCertificatesNeedARestart(t *testing.T) {
	a, dir := newAuthority(t, "both"), t.TempDir()
	cert, key := a.Issue(t, "regiond one")
	for name, content := range map[string]string{"cert.pem": cert, "key.pem": key, "ca.PEM": a.PEM} {
		write(t, filepath.Join(dir, name), content)
	}
	p := start(t, inMemory())
	p.admin.get(t, "/v1/regions").is(t, http.StatusOK)
	p.rewrite(t, "\npolicies:", strings.ReplaceAll(`
access:
  {cert_file: DIR/cert.pem, key_file: DIR/key.pem, client_ca_file: DIR/ca.PEM,
   admin_cert_file: DIR/cert.pem, admin_key_file: DIR/key.pem, admin_client_ca_file: DIR/ca.PEM, admin_client_names: [operator]}
policies:`, "DIR", dir))
	if line := p.log.Await(t, "these changes need a restart", 1); line["fields"] != "access/cert_file, access/admin_cert_file" {
		t.Errorf("the log says %v", line)
	}
	p.check(t, "acme").is(t, http.StatusOK)
	p.admin.get(t, "/v1/regions").is(t, http.StatusUnauthorized)
	p.admin.get(t, "/readyz").is(t, http.StatusOK)
}

// serving is the name on the certificate that a new connection to a listener gets.
func (g *guarded) serving(t *testing.T, url string) (string, error) {
	t.Helper()
	d := tls.Dialer{Config: &tls.Config{RootCAs: g.server.Pool, MinVersion: tls.VersionTLS12}}
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// TestRenewedCertificate: the next connection gets the new one, without a restart.
func TestRenewedCertificate(t *testing.T) {
	g := startGuarded(t)
	for _, l := range []struct{ url, who, files string }{{g.url, "regiond", ""}, {g.admin.url, "admin", "admin-"}} {
		if name, err := g.serving(t, l.url); err != nil || name != l.who+" one" {
			t.Fatalf("at the start: %q, %v", name, err)
		}
		cert, key := g.server.Issue(t, l.who+" two")
		put(t, filepath.Join(g.dir, l.files+"cert.pem"), cert)
		put(t, filepath.Join(g.dir, l.files+"key.pem"), key)
		capture.Eventually(t, func() error {
			name, err := g.serving(t, l.url)
			if err == nil && name != l.who+" two" {
				err = errors.New("still " + name)
			}
			return err
		})
		// A certificate without its key would be an outage: the old one stays.
		other, otherKey := g.server.Issue(t, l.who+" three")
		failures := len(g.log.Lines("reload: the configuration in force stays"))
		put(t, filepath.Join(g.dir, l.files+"cert.pem"), other)
		g.log.Await(t, "reload: the configuration in force stays", failures+1)
		if name, err := g.serving(t, l.url); err != nil || name != l.who+" two" {
			t.Errorf("after half a renewal: %q, %v", name, err)
		}
		put(t, filepath.Join(g.dir, l.files+"key.pem"), otherKey)
		capture.Eventually(t, func() error {
			name, err := g.serving(t, l.url)
			if err == nil && name != l.who+" three" {
				err = errors.New("still " + name)
			}
			return err
		})
	}
}

// TestReplacedClientAuthority: certificates of the old one are worth nothing from then on, on
// connections that stand, which end then, and on new ones, not even those that resume a session.
func TestReplacedClientAuthority(t *testing.T) {
	g := startGuarded(t)
	old, operator := g.server.client(t, g.url, g.clients), g.server.clientNamed(t, g.admin.url, g.clients, "operator")
	old.ask(t, http.MethodPost, "/v1/check", body).is(t, http.StatusOK)
	operator.ask(t, http.MethodGet, "/v1/regions", "").is(t, http.StatusOK)
	// The same for a name that is taken off the lists.
	const names, others = "admin_client_names: [operator]", "admin_client_names: [other]\n  client_names: [another]"
	g.rewrite(t, names, others)
	g.log.Await(t, "reloaded", 1)
	old.ask(t, http.MethodPost, "/v1/check", body).is(t, http.StatusUnauthorized)
	operator.ask(t, http.MethodGet, "/v1/regions", "").is(t, http.StatusUnauthorized)
	g.rewrite(t, others, names)
	g.log.Await(t, "reloaded", 2)
	next := newAuthority(t, "next clients")
	put(t, filepath.Join(g.dir, "clients.PEM"), g.clients.PEM+next.PEM)
	g.log.Await(t, "reloaded", 3)
	old.ask(t, http.MethodPost, "/v1/check", body).is(t, http.StatusOK)
	operator.ask(t, http.MethodGet, "/v1/regions", "").is(t, http.StatusOK)
	put(t, filepath.Join(g.dir, "clients.PEM"), next.PEM)
	g.log.Await(t, "reloaded", 4)
	g.server.client(t, g.url, next).ask(t, http.MethodPost, "/v1/check", body).is(t, http.StatusOK)
	old.ask(t, http.MethodPost, "/v1/check", body).is(t, http.StatusUnauthorized)
	operator.ask(t, http.MethodGet, "/v1/regions", "").is(t, http.StatusUnauthorized)
	if a, err := old.try(t.Context(), http.MethodPost, "/v1/check", body); err == nil && a.status != http.StatusUnauthorized {
		t.Errorf("a new connection with a certificate of the old authority gets %d", a.status)
	}
}

// TestRenewedClientCertificate: each connection shows what is in the files, so that no
// restart is needed before the old one runs out; half a renewal leaves the old one.
func TestRenewedClientCertificate(t *testing.T) {
	dir, clients := t.TempDir(), newAuthority(t, "clients")
	files := &region.TLS{CAFile: filepath.Join(dir, "ca.PEM"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	write(t, files.CAFile, clients.PEM)
	cert, key := clients.Issue(t, "one")
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
		pair, err := config.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.Subject.CommonName
	}
	if got := shown(); got != "one" {
		t.Errorf("at first it shows %q", got)
	}
	cert, key = clients.Issue(t, "two")
	put(t, files.CertFile, cert)
	if got := shown(); got != "one" {
		t.Errorf("with the new certificate and the old key it shows %q", got)
	}
	put(t, files.KeyFile, key)
	if got := shown(); got != "two" {
		t.Errorf("renewed it shows %q", got)
	}
}
