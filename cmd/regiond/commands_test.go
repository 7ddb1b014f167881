package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// said is what a command printed, and its exit code.
type said struct {
	code           int
	stdout, stderr string
}

func invoke(t *testing.T, args ...string) said {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := dispatch(t.Context(), args, &stdout, &stderr)
	http.DefaultClient.CloseIdleConnections() // the process would end here
	return said{code, stdout.String(), stderr.String()}
}

// session is a golden file: commands, what each printed, and how it ended.
type session struct {
	text    strings.Builder
	replace []string // pairs: what differs from run to run, and what stands for it
}

var retry = regexp.MustCompile(`retry after (59m59|1h0m0)[0-9.]*s`)

// run runs a command and adds it to the session. Lines of stderr begin with "! ".
func (s *session) run(t *testing.T, args ...string) {
	t.Helper()
	got := invoke(t, args...)
	tidy := strings.NewReplacer(s.replace...).Replace
	fmt.Fprintf(&s.text, "$ regiond %s\n%s", tidy(strings.Join(args, " ")), retry.ReplaceAllString(tidy(got.stdout), "retry after 59m59.9s"))
	for line := range strings.Lines(tidy(got.stderr)) {
		s.text.WriteString("! " + line)
	}
	fmt.Fprintf(&s.text, "= %d\n\n", got.code)
}

func (s *session) compare(t *testing.T, name string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		write(t, file, s.text.String())
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), s.text.String()); diff != "" {
		t.Errorf("%s (-want +got, -update writes it anew):\n%s", file, diff)
	}
}

func TestCommandLine(t *testing.T) {
	s := session{replace: []string{runtime.Version(), "GO"}}
	for _, args := range [][]string{
		{},
		{"help"},
		{"srve"},
		{"version"},
		{"version", "-o", "json"},
		{"version", "-o", "yaml"},
		{"healthcheck", "-h"},
		{"healthcheck", "now"},
		{"healthcheck", "--addr", "http://[::1"},
		{"check"},
		{"check", "acme", "globex"},
		{"check", "acme", "--csot", "5"},
		{"check", "acme", "-d", "user"},
		{"check", "acme", "--cost", "five"},
		{"check", "acme", "--token-file", "testdata/absent"},
		{"validate", "testdata/absent.yaml"},
		{"validate", "a.yaml", "b.yaml"},
		{"serve", "now"},
		{"serve", "--config", "topology.yaml"},
		{"serve", "--region", "eu-west"},
		{"serve", "--config", "testdata/valid.yaml", "--region", "us-east"},
		{"serve", "--config", "testdata/absent.yaml", "--region", "us-east"},
		{"serve", "--processes", "0"},
		{"serve", "--drain", "-1s"},
		{"serve", "--drain", "5"},
		{"serve", "--redis-budget", "0s"},
		{"serve", "--redis-budget", "60ms"},
		{"serve", "--log-format", "xml"},
	} {
		s.run(t, args...)
	}
	s.compare(t, "commandline")
}

func TestHelpListsTheFlags(t *testing.T) {
	for command, flags := range map[string][]string{
		"serve":       {"-config", "-region", "-instance", "-http", "-admin", "-processes", "-drain", "-redis-budget", "-log-format"},
		"validate":    {"-o"},
		"check":       {"-d", "-cost", "-policy", "-addr", "-token-file", "-idempotency-key", "-o"},
		"healthcheck": {"-addr", "-timeout"},
		"version":     {"-o"},
		"bench":       {"-target", "-rate", "-for", "-warmup", "-tenants", "-tenant-prefix", "-zipf", "-policy", "-cost", "-max-in-flight", "-timeout", "-token-file", "-ca-file", "-o"},
	} {
		got := invoke(t, command, "-h")
		if got.code != 0 || !strings.HasPrefix(got.stderr, "usage: regiond "+command) {
			t.Errorf("%s -h exits with %d and says\n%s", command, got.code, got.stderr)
		}
		for _, f := range flags {
			if !strings.Contains(got.stderr, "\n  "+f+" ") {
				t.Errorf("%s -h does not list %s:\n%s", command, f, got.stderr)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	var s session
	for _, file := range []string{"valid.yaml", "warned.yaml", "mistaken.yaml", "torn.yaml"} {
		s.run(t, "validate", "testdata/"+file)
		s.run(t, "validate", "-o", "json", "testdata/"+file)
	}
	s.run(t, "validate", "testdata/valid.yaml", "-o", "json") // flags may stand behind
	s.compare(t, "validate")
}

// TestValidateKnowsTheShippedFile: without words it looks where people keep it.
func TestValidateKnowsTheShippedFile(t *testing.T) {
	t.Chdir("../..")
	got := invoke(t, "validate")
	if got.code != 0 || got.stderr != "" || !strings.HasPrefix(got.stdout, "topology.yaml: valid, 3 regions, ") {
		t.Errorf("%+v", got)
	}
}

func TestCheckCommand(t *testing.T) {
	p := start(t, inMemory())
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

// TestCheckPrintsJSON: -o json prints what the service said, refusals too.
func TestCheckPrintsJSON(t *testing.T) {
	p := start(t, inMemory())
	for _, c := range []struct {
		args    []string
		code    int
		allowed bool
		problem string
	}{
		{[]string{"acme", "--cost", "5"}, 0, true, ""},
		{[]string{"acme"}, 1, false, "quota-exceeded"},
		{[]string{"acme", "--cost", "-1"}, 2, false, "invalid-request"},
	} {
		got := invoke(t, append([]string{"check", "-o", "json", "--addr", p.url}, c.args...)...)
		var d decision
		if err := json.Unmarshal([]byte(got.stdout), &d); err != nil {
			t.Fatalf("%v: %v\n%s", c.args, err, got.stdout)
		}
		if got.code != c.code || d.Allowed != c.allowed || !strings.HasSuffix(d.Type, c.problem) || got.stderr != "" {
			t.Errorf("%v: exit %d, %+v, %q", c.args, got.code, d, got.stderr)
		}
	}
}

// TestCommandsWithoutRegiond: nobody there is an error, not a denial.
func TestCommandsWithoutRegiond(t *testing.T) {
	p := start(t, inMemory())
	if got := invoke(t, "healthcheck", "--addr", p.admin.url); got.code != 0 || got.stdout != `{"ready":true,"reasons":[]}`+"\n" {
		t.Errorf("healthcheck of a running one: %+v", got)
	}
	p.signals <- syscall.SIGTERM
	p.log.await(t, "stopping", 1)
	if got := invoke(t, "healthcheck", "--addr", p.admin.url); got.code != 1 || !strings.Contains(got.stdout, "draining") {
		t.Errorf("healthcheck of a draining one: %+v", got)
	}
	p.stop()
	if got := invoke(t, "healthcheck", "--addr", p.admin.url); got.code != 1 || !strings.Contains(got.stderr, "connection refused") {
		t.Errorf("healthcheck of nobody: %+v", got)
	}
	if got := invoke(t, "check", "acme", "--addr", p.url); got.code != 2 || !strings.Contains(got.stderr, "is it running there?") {
		t.Errorf("check of nobody: %+v", got)
	}
}

// TestCheckWhenClosed: a fail mode that denies is a denial to a script.
func TestCheckWhenClosed(t *testing.T) {
	p := start(t, onRedis(nobody(t)))
	if got := invoke(t, "check", "closely", "--addr", p.url); got.code != 1 || !strings.HasPrefix(got.stdout, "denied  closing.hourly: 0 of 5 left, retry after 1s  (basis closed, mode local, ") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, "check", "openly", "--addr", p.url); got.code != 0 || !strings.Contains(got.stdout, "basis open, mode local") {
		t.Errorf("%+v", got)
	}
}

// TestCheckCommandOverTLS: a private authority has to be named, and the token is
// read from a file.
func TestCheckCommandOverTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer data-secret" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"type":"urn:regiond:problem:unauthorized","title":"The caller is not known","detail":"no token"}`)
			return
		}
		_, _ = io.WriteString(w, `{"allowed":true,"basis":"exact","mode":"global"}`)
	}))
	defer s.Close()
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	secret, ca := filepath.Join(t.TempDir(), "secret"), filepath.Join(t.TempDir(), "ca.pem")
	write(t, secret, "data-secret\n")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	for _, c := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"--token-file", secret, "--ca-file", ca}, 0, ""},
		{[]string{"--ca-file", ca}, 2, "The caller is not known: "},
		{[]string{"--token-file", secret}, 2, "certificate"},
		{[]string{"--ca-file", secret}, 2, "no PEM certificate"},
	} {
		got := invoke(t, append([]string{"check", "acme", "--addr", s.URL}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.stderr, c.stderr) {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
}
