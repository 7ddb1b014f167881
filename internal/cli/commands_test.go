package cli

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/ports"
)

func TestValidate(t *testing.T) {
	var s session
	for _, file := range []string{"valid.yaml", "warned.yaml", "mistaken.yaml", "torn.yaml"} {
		s.run(t, "validate", "testdata/"+file)
		s.run(t, "validate", "-o", "json", "testdata/"+file)
	}
	s.run(t, "validate", "testdata/valid.yaml", "-o", "json") // flags may follow arguments
	s.compare(t, "validate")
	t.Chdir("../..")
	// It is for the networks of the compose file, which nobody else reaches.
	got := invoke(t, "validate")
	lines := strings.Split(got.stdout, "\n")
	if got.code != 0 || len(lines) != 4 || !strings.Contains(lines[0], "whoever reaches the API of eu-west, us-east, ap-south") ||
		!strings.HasPrefix(lines[1], "topology.yaml: not checked, since this host or user cannot read them: /run/secrets/") ||
		!strings.HasPrefix(lines[2], "topology.yaml: valid, 3 regions, ") {
		t.Errorf("the shipped topology: %+v", got)
	}
}

// TestValidateWas: what a reload from another file starts anew is a warning, of a policy that was renamed, or of another zone or anchor
// too; a file that cannot be read is not.
func TestValidateWas(t *testing.T) {
	dir := t.TempDir()
	at := func(name, policy, calendar string) string {
		file := filepath.Join(dir, name)
		text := "regions: [{name: a, http: 127.0.0.1:1}]\npolicies: [{name: " + policy + ", limits: [{name: monthly, units: 5, calendar: month" + calendar +
			"}]}]\ntenants: {default: {policy: " + policy + "}}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	now := at("now.yaml", "p", "")
	for name, row := range map[string]struct {
		policy, calendar string
		warned           bool
	}{"same": {"p", "", false}, "zone": {"p", ", timezone: Europe/Berlin", true}, "anchor": {"p", ", anchor: 15", true}, "renamed": {"former", "", true}} {
		got := invoke(t, "validate", "--was", at("was.yaml", row.policy, row.calendar), now)
		if got.code != 0 || strings.Contains(got.stdout, "these limits start anew, ") != row.warned || strings.Contains(got.stdout, ": p.monthly") != row.warned {
			t.Errorf("%s: %+v", name, got)
		}
	}
	text, err := os.ReadFile(now)
	if err != nil {
		t.Fatal(err)
	}
	for regions, want := range map[string]string{
		"regions: [{name: b, ": "set revision: 1 in the file of every region",
		"revision: 1\nregions: [{name: b, http: 127.0.0.1:2}, {name: a, ": "a second region needs a restart",
	} {
		other := filepath.Join(dir, "other.yaml")
		if err := os.WriteFile(other, bytes.Replace(text, []byte("regions: [{name: a, "), []byte(regions), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := invoke(t, "validate", "--was", now, other); got.code != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v", regions, got)
		}
	}
	if got := invoke(t, "validate", "--was", filepath.Join(dir, "absent"), now); got.code == 0 || !strings.Contains(got.stderr, "--was: ") {
		t.Errorf("an absent file: %+v", got)
	}
}

func TestCheck(t *testing.T) {
	p := start(t, inMemory)
	s := session{replace: []string{p.url, "http://REGIOND", strings.TrimPrefix(p.url, "http://"), "REGIOND"}}
	for _, args := range [][]string{
		{"acme"},
		{"--cost", "2", "acme"},
		{"acme", "--cost", "2", "--idempotency-key", "k1"},
		{"acme", "--cost", "2", "--idempotency-key", "k1"}, // again: free
		{"acme"},
		{"acme", "--policy", "opening"},
		{"-d", "ip=192.0.2.1", "globex", "-d", "route=login", "--cost", "2"},
		{"globex", "-d", "ip=192.0.2.1", "-d", "route=login"},
		{"watched", "--cost", "5"},
		{"watched"},
		{"acme", "--cost", "6"},
		{"acme", "--cost", "0"},
		{"acme", "--cost", "1e3"},
		{"not an id", "-d", "usr=42"},
		{"acme", "--policy", "gold"},
	} {
		s.run(t, append(append([]string{"check"}, args...), "--addr", p.url)...)
	}
	s.run(t, "check", "--addr", p.url+"/", "hooli") // a slash too many
	s.run(t, "check", "--addr", p.url+"/elsewhere", "hooli")
	s.run(t, "check", "--addr", strings.TrimPrefix(p.url, "http://"), "hooli")
	s.run(t, "check", "--addr", "ftp://127.0.0.1", "hooli")
	s.compare(t, "check")
}

func TestExplain(t *testing.T) {
	p := start(t, inMemory)
	s := session{replace: []string{p.url, "http://REGIOND", p.admin, "http://ADMIN", strings.TrimPrefix(p.url, "http://"), "REGIOND"}}
	for _, args := range [][]string{
		{"acme"}, // again and again: nothing is spent, so no time until it frees
		{"acme", "--cost", "5"},
		{"acme", "--policy", "opening"},
		{"globex", "-d", "ip=192.0.2.1", "-d", "route=login"},
		{"nobody"},
		{"acme", "--policy", "gold"},
		{"acme", "--cost", "6"},
		{"acme", "--cost", "five"},
		{"not an id", "-d", "usr=42"},
		{},
		{"acme", "globex"},
		{""},
	} {
		s.run(t, append(append([]string{"explain"}, args...), "--addr", p.url)...)
	}
	s.run(t, "explain", "acme", "--addr", p.admin)
	s.compare(t, "explain")
	var v struct {
		Allowed bool              `json:"allowed"`
		Explain quota.Explanation `json:"explain"`
	}
	got := invoke(t, "explain", "acme", "-o", "json", "--addr", p.url)
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil || !v.Allowed || len(v.Explain.Sentences) == 0 || len(v.Explain.Limits) != 1 {
		t.Errorf("%+v: %v", got, err)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	defer page.Close()
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"explain":{"sentences":["20 − 5, ÷ 2 processes","a\u001b[2J\n\u2028\u0085b"]}}`)
	}))
	defer hostile.Close()
	if got := invoke(t, "explain", "acme", "--addr", hostile.URL); got.stdout != "20 - 5, / 2 processes\na?[2J???b\n" {
		t.Errorf("what a terminal might obey: %q", got.stdout)
	}
	if got := invoke(t, "explain", "acme", "--addr", page.URL); got.code != 2 || !strings.Contains(got.stderr, "is not regiond's data listener") {
		t.Errorf("of another server: %+v", got)
	}
}

// TestRunning: healthcheck and check of a regiond that runs, drains, and is gone.
func TestRunning(t *testing.T) {
	p := start(t, inMemory)
	if got := invoke(t, "healthcheck", "--addr", p.admin); got.code != 0 || got.stdout != `{"ready":true,"reasons":[]}`+"\n" {
		t.Errorf("healthcheck of a running one: %+v", got)
	}
	p.signals <- syscall.SIGTERM
	awaitReady(t, p, http.StatusServiceUnavailable)
	if got := invoke(t, "healthcheck", "--addr", p.admin); got.code != 1 || !strings.Contains(got.stdout, "draining") {
		t.Errorf("healthcheck of a draining one: %+v", got)
	}
	p.stop()
	if got := invoke(t, "healthcheck", "--addr", p.admin); got.code != 1 || !strings.Contains(got.stderr, "connection refused") {
		t.Errorf("healthcheck of nobody: %+v", got)
	}
	if got := invoke(t, "check", "acme", "--addr", p.url); got.code != 2 || !strings.Contains(got.stderr, "is it running there?") {
		t.Errorf("check of nobody: %+v", got)
	}
}

// TestCheckAnswers: a script that uses the exit code must not take a login page for
// "allowed", nor the 429 or 503 of a proxy for "denied".
func TestCheckAnswers(t *testing.T) {
	const (
		yes     = `{"allowed":true,"basis":"exact","mode":"global","policy":"standard"}`
		no      = `{"allowed":false,"basis":"closed","mode":"local","policy":"standard"}`
		problem = `"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Capacity is reduced for now","status":503}`
		reduced = "{" + problem
		shed    = `{"allowed":false,"basis":"shed","mode":"global","reason":"overloaded",` + problem
		passed  = `{"allowed":true,"basis":"shed","mode":"global","reason":"overloaded","policy":"standard","enforcement":"observe"}`
		invalid = `{"type":"urn:regiond:problem:invalid-request","title":"The request breaks a rule","status":400}`
		page    = "<title>Log in</title>"
		foreign = "the answer is not regiond's"
	)
	for _, row := range []struct {
		status int
		body   string
		code   int
		says   string // on stderr; "" for nothing
	}{
		{200, yes, ExitOK, ""},
		{429, no, ExitFailed, ""},
		{503, no, ExitFailed, ""},
		{503, reduced, ExitUsage, "Capacity is reduced for now"},
		{503, shed, ExitUsage, "Capacity is reduced for now"},
		{200, passed, ExitOK, ""},
		{400, invalid, ExitUsage, "The request breaks a rule"},
		{200, page, ExitUsage, foreign},
		{200, "{}", ExitUsage, foreign},
		{200, no, ExitUsage, foreign},
		{200, `{"allowed":true}`, ExitUsage, foreign},
		{307, "", ExitUsage, foreign},
		{429, yes, ExitUsage, foreign},
		{429, `{"title":"Too Many Requests","status":429}`, ExitUsage, foreign},
		{500, no, ExitUsage, foreign},
		{503, page, ExitUsage, foreign},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/login" { // a redirect must not be followed
				_, _ = io.WriteString(w, yes)
				return
			}
			w.Header().Set("Location", "/login")
			w.WriteHeader(row.status)
			_, _ = io.WriteString(w, row.body)
		}))
		text := invoke(t, "check", "acme", "--addr", s.URL)
		if text.code != row.code || !strings.Contains(text.stderr, row.says) || (row.says == "") != (text.stderr == "") || (text.stdout == "") != (row.code == ExitUsage) {
			t.Errorf("%d %s: %+v", row.status, row.body, text)
		}
		script := invoke(t, "check", "acme", "--addr", s.URL, "-o", "json")
		if script.code != row.code || script.stdout != row.body+"\n" || (script.stderr == "") != (row.says != foreign) {
			t.Errorf("%d %s with -o json: %+v", row.status, row.body, script)
		}
		s.Close()
	}
}

// TestAdminOverTLS: the commands of the admin listener name an authority by a flag or the
// environment, show a certificate, and say what is missing.
func TestAdminOverTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/regions" && len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"title":"The caller is not known","detail":"no token"}`)
			return
		}
		_, _ = io.WriteString(w, `{"ready":true,"mode":{"mode":"global"}}`)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	defer s.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	dir := t.TempDir()
	ca, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "key.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	der, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	for _, c := range []struct {
		env    string
		args   []string
		code   int
		stderr string
	}{
		{"", []string{"regions", "--addr", s.URL, "--ca-file", ca, "--cert-file", ca, "--key-file", key}, 0, ""},
		{ca, []string{"regions", "--addr", s.URL, "--cert-file", ca, "--key-file", key}, 0, ""},
		{ca, []string{"regions", "--addr", s.URL}, 2, "or a client certificate by --cert-file"},
		{"", []string{"regions", "--addr", s.URL}, 2, "name the authority of its certificate by --ca-file or REGIOND_CA_FILE"},
		{ca, []string{"regions", "--addr", s.URL, "--cert-file", ca}, 2, "--cert-file and --key-file go together"},
		{ca, []string{"regions", "--addr", s.URL, "--cert-file", ca, "--key-file", ca}, 2, "--cert-file, --key-file: "},
		{key, []string{"regions", "--addr", s.URL}, 2, "no PEM certificate"},
		{"", []string{"regions", "--addr", strings.Replace(s.URL, "https:", "http:", 1)}, 2, "its address begins with https://"},
		{"", []string{"regions", "--addr", strings.Replace(plain.URL, "http:", "https:", 1)}, 2, "so the address begins with http://"},
		{ca, []string{"healthcheck", "--addr", s.URL}, 0, ""},
		{"", []string{"healthcheck", "--addr", s.URL, "--ca-file", ca}, 0, ""},
		{"", []string{"healthcheck", "--addr", s.URL}, 1, "--ca-file or REGIOND_CA_FILE"},
	} {
		t.Setenv(caFileVariable, c.env)
		if got := invoke(t, c.args...); got.code != c.code || !strings.Contains(got.stderr, c.stderr) {
			t.Errorf("%s=%s %v: %+v", caFileVariable, c.env, c.args, got)
		}
	}
}

// TestRegions: exit code 0 is mode global, 1 any other mode, 2 no answer.
func TestRegions(t *testing.T) {
	dir := t.TempDir()
	secret, empty, fifo := filepath.Join(dir, "token"), filepath.Join(dir, "empty"), filepath.Join(dir, "fifo")
	write(t, secret, "s3cret\n")
	write(t, empty, "\n")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	report := func(mode string) string {
		b, err := json.Marshal(status.Report{Region: "eu-west", Mode: status.Mode{Mode: mode}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Replace(string(b), `"region"`, `"altitude_m":2400,"region"`, 1) // of a later version
	}
	for _, c := range []struct {
		name, token string // needed
		status      int
		body        string
		args        []string
		code        int
		says        string // on stdout, with code 2 on stderr
	}{
		{"global", "", 200, report("global"), nil, 0, "mode global\n"},
		{"global, JSON", "", 200, report("global"), []string{"-o", "json"}, 0, report("global")},
		{"partitioned", "", 200, report("partitioned"), nil, 1, "mode partitioned\n"},
		{"a page", "", 200, "<html>", nil, 2, "is not regiond's admin listener"},
		{"other JSON", "", 200, `{"ready":true}`, nil, 2, "is not regiond's admin listener"},
		{"another service", "", 404, "404 page not found", nil, 2, "status 404, and what answers at"},
		{"a problem", "", 404, `{"title":"Not found","detail":"try another"}`, nil, 2, "Not found: try another"},
		{"no token", "s3cret", 200, report("global"), nil, 2, "a bearer token is needed; name a file with a token for the admin listener by --token-file, or a client certificate by --cert-file"},
		{"a token", "s3cret", 200, report("global"), []string{"--token-file", secret}, 0, "mode global"},
		{"an empty file", "", 200, report("global"), []string{"--token-file", empty}, 2, "--token-file: " + empty + " is empty"},
		{"a FIFO", "", 200, report("global"), []string{"--token-file", fifo}, 2, "it is a FIFO, and nothing was written into it"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/regions" {
				t.Errorf("it requests %s", r.URL)
			}
			if c.token != "" && r.Header.Get("Authorization") != "Bearer "+c.token {
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, `{"title":"Unauthorized","detail":"a bearer token is needed","status":401}`)
				return
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		got := invoke(t, append([]string{"regions", "--addr", s.URL}, c.args...)...)
		text, other := got.stdout, got.stderr
		if c.code == ExitUsage {
			text, other = other, text
		}
		if got.code != c.code || !strings.Contains(text, c.says) || other != "" {
			t.Errorf("%s: %+v", c.name, got)
		}
		s.Close()
	}
	if got := invoke(t, "regions", "--addr", "http://"+ports.Addr(t)); got.code != 2 || !strings.Contains(got.stderr, "is it running there?") {
		t.Errorf("of nobody: %+v", got)
	}
}
