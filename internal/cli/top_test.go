package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/quota"
)

// ranking answers GET /v1/top as regiond does, by the query that it is asked.
func ranking(q map[string][]string) quota.TopReport {
	v := quota.TopReport{
		WindowMS: 60_000, CoversMS: 83_400, Region: "eu-west", Regions: []string{"eu-west"}, Processes: 1, Total: 1000, OthersAtMost: 3,
		Rows: []quota.TopRow{
			{Tenant: "acme", Policy: "standard", Limit: "burst", Partition: "::", AtLeast: 700, AtMost: 702},
			{Tenant: "globex", Policy: "standard", Limit: "per-user", Partition: "user,ip:2.42,9.192.0.2.1:", AtLeast: 120, AtMost: 190},
			{Tenant: "", Policy: "standard", Limit: "login", Partition: "ip:-:route=5.login", AtLeast: 50, AtMost: 200},
			{Tenant: "evil\x1b[2J", Policy: "strict", Limit: "burst", Partition: "user:#12ab", AtLeast: 1, AtMost: 1},
			{Tenant: strings.Repeat("long-", 12), Policy: "strict", Limit: "burst", Partition: "::", AtLeast: 1, AtMost: 1},
		},
	}
	_ = v.By.UnmarshalText([]byte(q["by"][0]))
	if q["scope"][0] == "global" {
		v.Scope, v.Regions, v.Absent, v.Processes = quota.ScopeGlobal, []string{"eu-west", "us-east"}, []string{"ap-south"}, 4
		v.Notes = []string{"A note."}
	}
	return v
}

func rankingServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/v1/top" || q.Get("window") == "" || q.Get("limit") == "" {
			t.Errorf("it requests %s", r.URL)
		}
		if q.Get("policy") == "none" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"title":"The request breaks a rule","detail":"Nothing was charged; see errors for each mistake.","errors":[{"pointer":"#/policy","detail":"\"none\" is not a policy"}]}`)
			return
		}
		_ = json.NewEncoder(w).Encode(ranking(q))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestTopPlain(t *testing.T) {
	s := rankingServer(t)
	session := session{replace: []string{s.URL, "URL"}}
	for _, args := range [][]string{
		{},
		{"--by", "used", "--scope", "global", "--window", "1h"},
		{"-o", "json", "--limit", "3"},
		{"--policy", "none"},
		{"acme"},
		{"--by", "cost"},
		{"--scope", "eu"},
		{"--window", "5m"},
		{"--limit", "0"},
		{"--every", "1ms"},
	} {
		session.run(t, append([]string{"top", "--addr", s.URL}, args...)...)
	}
	session.compare(t, "top")
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	t.Cleanup(page.Close)
	if got := invoke(t, "top", "--addr", page.URL); got.code != 2 || !strings.Contains(got.stderr, "is not regiond's admin listener") {
		t.Errorf("of a page: %+v", got)
	}
}

func TestPartitionText(t *testing.T) {
	for partition, want := range map[string]string{
		"::": "-", "user:2.42:": "user=42", "user,ip:2.42,9.192.0.2.1:": "user=42 ip=192.0.2.1", "user:-:": "user=(none)",
		"::route=5.login": "route=login", "::a=1.x,b=3.y,z": "a=x b=y,z", "user:3.a:b:": "user=a:b",
		"user:#12ab": "user:#12ab", "": "", ":": ":", "user:9.short:": "user:9.short:", "user:x": "user:x", "::a=": "::a=", "a,b:1.x:": "a,b:1.x:",
	} {
		if got := partitionText(partition); got != want {
			t.Errorf("%q: %q, want %q", partition, got, want)
		}
	}
	// As they are written.
	l := &quota.Limit{By: []string{"ip", "user"}, When: []quota.Match{{Dimension: "route", Value: "a,b=1.c"}, {Dimension: "x", Value: "-"}}}
	partition := string(quota.AppendPartition(nil, l, quota.Dimensions{{Name: "user", Value: "1.2,3:"}}))
	if got := partitionText(partition); got != "ip=(none) user=1.2,3: route=a,b=1.c x=-" {
		t.Errorf("%q: %q", partition, got)
	}
}

// TestTopScreen: what each key does to the screen, as a file shows it.
func TestTopScreen(t *testing.T) {
	s := &topScreen{query: quota.TopQuery{Window: time.Minute}}
	var b strings.Builder
	shot := func(keys string, width, height int) {
		quit, ask := s.press([]byte(keys))
		text := s.draw(width, height)
		for i, line := range strings.Split(text, "\n") {
			if len(line) > width || i >= height {
				t.Errorf("%q: line %d of %d by %d: %q", keys, i, width, height, line)
			}
		}
		fmt.Fprintf(&b, "## %q quit=%v ask=%v\n%s\n\n", keys, quit, ask, text)
	}
	shot("", 100, 20)
	v := ranking(map[string][]string{"by": {"denied"}, "scope": {"global"}})
	s.report, s.at = &v, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, keys := range []string{"", "b", "w", "w", "g", "s", "s", "s", "s", "/", "GLO", "\x7fo", "\r", "/strict", "\x1b", "\x1b[A", "x"} {
		shot(keys, 100, 20)
	}
	shot("", 60, 6)
	shot("", 5, 1)
	s.err = fmt.Errorf("ask regiond: refused\x1b[2J")
	shot("q", 100, 20)
	shot("\x03", 100, 20)
	file := filepath.Join("testdata", "topscreen.golden")
	if *update {
		write(t, file, b.String())
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got, -update writes it anew):\n%s", file, diff)
	}
}

// topAddr, where it is set, has this test's binary be `regiond top` of that address.
const topAddr = "REGIOND_TEST_TOP"

// TestTopLive drives the table in a real terminal: tmux.
func TestTopLive(t *testing.T) {
	if addr := os.Getenv(topAddr); addr != "" {
		code, err := Top(t.Context(), []string{"--addr", addr, "--every", "100ms"}, os.Stdout, os.Stderr)
		fmt.Println("ended with", code, err)
		return
	}
	t.Parallel()
	s := rankingServer(t)
	w := newTerminal(t, fmt.Sprintf("%s=%s %s -test.run '^TestTopLive$'; exec cat", topAddr, s.URL, os.Args[0]))
	w.shows("TENANT", "acme", "user=42 ip=192.0.2.1", "evil?[2J", "1000 units denied in the last 1m23s in region eu-west", "Nobody else has more than 3.")
	w.types("b")
	w.shows("units used", "b used")
	w.types("g")
	w.shows("in eu-west, us-east, 4 processes", "Not counted: ap-south.", "A note.")
	w.types("w")
	w.shows("w 1h")
	w.types("/glob", "Enter")
	w.shows("/glob")
	w.lacks("acme")
	w.types("Escape")
	w.shows("acme")
	w.types("s")
	w.shows("s by at most")
	s.CloseClientConnections()
	s.Close()
	w.shows("is it running there?", "It is asked again.")
	w.types("q")
	w.shows("ended with 0 <nil>")
	w.lacks("TENANT") // the other screen is gone
}

// terminal is a tmux of its own with one window.
type terminal struct {
	t      *testing.T
	socket string
}

func newTerminal(t *testing.T, command string) *terminal {
	t.Helper()
	w := &terminal{t, filepath.Join(t.TempDir(), "tmux")}
	w.tmux("-f", os.DevNull, "new-session", "-d", "-x", "110", "-y", "24", command)
	t.Cleanup(func() { w.tmux("kill-server") })
	return w
}

func (w *terminal) tmux(args ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "tmux", append([]string{"-S", w.socket}, args...)...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("tmux %v: %v: %s (scripts/test-deps installs it)", args, err, out)
	}
	return string(out)
}

func (w *terminal) types(keys ...string) {
	w.t.Helper()
	w.tmux(append([]string{"send-keys"}, keys...)...)
}

// until waits for a screen.
func (w *terminal) until(what string, is func(screen string) bool) {
	w.t.Helper()
	ticker, timeout := time.NewTicker(30*time.Millisecond), time.After(time.Minute)
	defer ticker.Stop()
	for {
		screen := w.tmux("capture-pane", "-p")
		if is(screen) {
			return
		}
		select {
		case <-ticker.C:
		case <-timeout:
			w.t.Fatalf("%s; the screen has:\n%s", what, screen)
		}
	}
}

func (w *terminal) shows(all ...string) {
	w.t.Helper()
	for _, text := range all {
		w.until(fmt.Sprintf("never shows %q", text), func(screen string) bool { return strings.Contains(screen, text) })
	}
}

func (w *terminal) lacks(text string) {
	w.t.Helper()
	w.until(fmt.Sprintf("still shows %q", text), func(screen string) bool { return !strings.Contains(screen, text) })
}
