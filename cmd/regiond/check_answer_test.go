package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
		{200, yes, exitOK, "", true},
		{429, no, exitFailed, "", true},
		{503, no, exitFailed, "", true},
		{503, reduced, exitUsage, "Capacity is reduced for now", true},
		{400, invalid, exitUsage, "The request breaks a rule", true},
		{200, page, exitUsage, strange, false},
		{200, "", exitUsage, strange, false},
		{200, "{}", exitUsage, strange, false},
		{200, no, exitUsage, strange, false},
		{200, `{"allowed":true}`, exitUsage, strange, false},
		{307, "", exitUsage, strange, false},
		{429, yes, exitUsage, strange, false},
		{429, page, exitUsage, strange, false},
		{429, `{"title":"Too Many Requests","status":429}`, exitUsage, strange, false},
		{500, no, exitUsage, strange, false},
		{503, page, exitUsage, strange, false},
		{503, "{}", exitUsage, strange, false},
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
		if (text.stdout == "") != (row.code == exitUsage) {
			t.Errorf("%d %s: it prints %q", row.status, row.body, text.stdout)
		}
		script := invoke(t, "check", "acme", "--addr", s.URL, "-o", "json")
		if script.code != row.code || script.stdout != row.body+"\n" || (script.stderr == "") != row.quiet {
			t.Errorf("%d %s with -o json: %+v", row.status, row.body, script)
		}
		s.Close()
	}
}
