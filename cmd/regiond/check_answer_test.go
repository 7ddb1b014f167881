package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/regiond/regiond/internal/cli"
)

// TestCheckBelievesOnlyRegiond: a script that goes by the exit code must not take a
// login page for yes, nor a proxy's 429 or 503 for no.
func TestCheckBelievesOnlyRegiond(t *testing.T) {
	const (
		yes     = `{"allowed":true,"basis":"exact","mode":"global","policy":"standard"}`
		no      = `{"allowed":false,"basis":"closed","mode":"local","policy":"standard"}`
		reduced = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Capacity is reduced for now","status":503}`
		invalid = `{"type":"urn:regiond:problem:invalid-request","title":"The request breaks a rule","status":400}`
		page    = "<title>Log in</title>"
		strange = "the answer is not regiond's"
	)
	for _, row := range []struct {
		status int
		body   string
		code   int
		says   string // on stderr; "" for nothing
		quiet  bool   // with -o json there is nothing on stderr
	}{
		{200, yes, cli.ExitOK, "", true},
		{429, no, cli.ExitFailed, "", true},
		{503, no, cli.ExitFailed, "", true},
		{503, reduced, cli.ExitUsage, "Capacity is reduced for now", true},
		{400, invalid, cli.ExitUsage, "The request breaks a rule", true},
		{200, page, cli.ExitUsage, strange, false},
		{200, "", cli.ExitUsage, strange, false},
		{200, "{}", cli.ExitUsage, strange, false},
		{200, no, cli.ExitUsage, strange, false},
		{200, `{"allowed":true}`, cli.ExitUsage, strange, false},
		{307, "", cli.ExitUsage, strange, false},
		{429, yes, cli.ExitUsage, strange, false},
		{429, page, cli.ExitUsage, strange, false},
		{429, `{"title":"Too Many Requests","status":429}`, cli.ExitUsage, strange, false},
		{500, no, cli.ExitUsage, strange, false},
		{503, page, cli.ExitUsage, strange, false},
		{503, "{}", cli.ExitUsage, strange, false},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/login" { // nobody shall come here
				_, _ = io.WriteString(w, yes)
				return
			}
			w.Header().Set("Location", "/login")
			w.WriteHeader(row.status)
			_, _ = io.WriteString(w, row.body)
		}))
		text := invoke(t, "check", "acme", "--addr", s.URL)
		if text.code != row.code || !strings.Contains(text.stderr, row.says) || (row.says == "") != (text.stderr == "") {
			t.Errorf("%d %s: %+v", row.status, row.body, text)
		}
		if (text.stdout == "") != (row.code == cli.ExitUsage) {
			t.Errorf("%d %s: it prints %q", row.status, row.body, text.stdout)
		}
		script := invoke(t, "check", "acme", "--addr", s.URL, "-o", "json")
		if script.code != row.code || script.stdout != row.body+"\n" || (script.stderr == "") != row.quiet {
			t.Errorf("%d %s with -o json: %+v", row.status, row.body, script)
		}
		s.Close()
	}
}
