//go:build unix

// The example, called by customers, with the real regiond.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/middleware"
)

// daemon is regiond on this folder's topology.yaml.
type daemon struct {
	url    string
	cmd    *exec.Cmd
	exited chan struct{}
}

// startRegiond starts it with further edits, each an old and a new text.
func startRegiond(t *testing.T, binary string, edits ...string) *daemon {
	t.Helper()
	dir := t.TempDir()
	data, admin := freeAddr(t), freeAddr(t)
	text, err := os.ReadFile("topology.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "topology.yaml")
	edited := strings.NewReplacer(append(edits, "127.0.0.1:8080", data, "127.0.0.1:9090", admin)...).Replace(string(text))
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemon{url: "http://" + data, exited: make(chan struct{})}
	d.cmd = exec.Command(binary, "serve", "--config", file, "--region", "eu-west")
	var stderr strings.Builder
	d.cmd.Stderr = &stderr
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.exited)
		_ = d.cmd.Wait() // a signal ends it
	}()
	t.Cleanup(func() {
		d.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("output of regiond:\n%s", stderr.String())
		}
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		if resp, err := http.Get("http://" + admin + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return d
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-d.exited:
			t.Fatal("regiond ended instead of becoming ready")
		}
		if time.Now().After(deadline) {
			t.Fatal("regiond is not ready after 20 s")
		}
	}
}

func (d *daemon) end(sig os.Signal) {
	_ = d.cmd.Process.Signal(sig) // it may be gone already
	<-d.exited
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve starts the example's handler with a regiond.
func serve(t *testing.T, regiond string, closed bool) string {
	t.Helper()
	h, err := limited(regiond, closed, api())
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// response is what a customer gets.
type response struct {
	status int
	header http.Header
	body   string
}

func get(t *testing.T, url, key, user string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", key)
	req.Header.Set("X-User", user)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{status: resp.StatusCode, header: resp.Header, body: string(body)}
}

func TestExample(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts regiond")
	}
	binary := filepath.Join(t.TempDir(), "regiond")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/regiond")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build regiond: %v\n%s", err, out)
	}
	for name, test := range map[string]func(*testing.T, string){
		"limits hold":               testLimits,
		"decisions are decoded":     testDecisions,
		"invalid checks are errors": testInvalid,
		"no size passes":            testSizes,
		"killed and open":           func(t *testing.T, b string) { testKilled(t, b, false) },
		"killed and closed":         func(t *testing.T, b string) { testKilled(t, b, true) },
	} {
		t.Run(name, func(t *testing.T) { test(t, binary) })
	}
}

func testLimits(t *testing.T, binary string) {
	api := serve(t, startRegiond(t, binary).url, false)
	for range 5 {
		if got := get(t, api+"/status", "demo-key-hobby", "ann"); got.status != 200 || got.body != "all is well\n" || got.header.Get("RateLimit") == "" {
			t.Fatalf("%d %q %v, want the API's response and what is left", got.status, got.body, got.header)
		}
	}
	got := get(t, api+"/status", "demo-key-hobby", "ann") // per-user is exhausted
	if got.status != 429 || got.header.Get("Retry-After") == "" || !json.Valid([]byte(got.body)) {
		t.Errorf("%d %q %v, want 429 with Retry-After and a problem document", got.status, got.body, got.header)
	}
	if strings.Contains(got.body, "ceiling") {
		t.Errorf("the customer gets the ceilings: %s", got.body)
	}
	for _, c := range []struct {
		path, key, user string
		status          int
	}{
		{"/search/go", "demo-key-hobby", "bob", 200}, // 5 of the 5 that are left of 10
		{"/status", "demo-key-hobby", "eve", 429},
		{"/status", "demo-key-globex", "ann", 200},
		{"/status", "guessed", "ann", 403},
	} {
		if got := get(t, api+c.path, c.key, c.user); got.status != c.status {
			t.Errorf("%s as %s of %s = %d, want %d", c.path, c.user, c.key, got.status, c.status)
		}
	}
}

// testSizes sends requests of all sizes as a tenant that has nothing left. No quota comes back meanwhile.
func testSizes(t *testing.T, binary string) {
	regiond := startRegiond(t, binary, "{name: sustained, units: 10, per: 1m}", "{name: sustained, units: 10, per: 1h}")
	api := serve(t, regiond.url, false)
	for _, user := range []string{"ann", "bob"} {
		if got := get(t, api+"/search/go", "demo-key-hobby", user); got.status != 200 {
			t.Fatalf("%d, want the API's response", got.status)
		}
	}
	statuses := map[int]int{}
	for i := range 120 {
		size := 1 << 10 << (i % 10)
		statuses[get(t, api+"/status", "demo-key-hobby", strings.Repeat("u", size+rand.IntN(size)-size/2)).status]++
	}
	if statuses[200] != 0 || statuses[500] == 0 {
		t.Errorf("statuses %v, want none of 200", statuses)
	}
	if got := get(t, api+"/status", "demo-key-hobby", "eve"); got.status != 429 {
		t.Errorf("%d without a large field, want 429", got.status)
	}
}

// testDecisions checks that the client decodes what the real daemon sends.
func testDecisions(t *testing.T, binary string) {
	client, err := middleware.New(middleware.Options{URL: startRegiond(t, binary).url, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	check := middleware.Check{Tenant: "hobby", Cost: 4, IdempotencyKey: "k1"}
	for range 2 { // the second is a replay, and costs nothing
		d, err := client.Check(t.Context(), check)
		if err != nil || !d.Allowed || d.Away || d.Status != 200 || d.Policy != "free" || d.Name == "" || d.Limit == 0 || d.Basis != "exact" || d.Mode != "global" {
			t.Fatalf("decision %+v, %v; want allowed by policy free, exact", d, err)
		}
	}
	d, err := client.Check(t.Context(), middleware.Check{Tenant: "hobby", Cost: 4, Dimensions: map[string]string{"user": "ann"}})
	if err != nil || !d.Allowed || d.Remaining != 1 || d.Name != "per-user" {
		t.Fatalf("decision %+v, %v; want the user's limit nearest with 1 left", d, err)
	}
	d, err = client.Check(t.Context(), middleware.Check{Tenant: "hobby", Cost: 4, Dimensions: map[string]string{"user": "bob"}})
	if err != nil || d.Allowed || d.Status != 429 || d.Name != "sustained" || d.Remaining != 2 ||
		d.RetryAfter <= 50*time.Second || d.RetryAfter > time.Minute || d.Header.Get("Retry-After") == "" {
		t.Errorf("decision %+v, %v; want denied by sustained with 2 left, again within a minute", d, err)
	}
}

func testInvalid(t *testing.T, binary string) {
	client, err := middleware.New(middleware.Options{URL: startRegiond(t, binary).url, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		check  middleware.Check
		status int
		detail string
	}{
		{middleware.Check{Tenant: "acme", Policy: "unknown"}, 400, "policy"},
		{middleware.Check{}, 400, "tenant"},
		{middleware.Check{Tenant: "acme", Dimensions: map[string]string{"usr": "1"}}, 400, "usr"},
		{middleware.Check{Tenant: "hobby", Cost: 11}, 422, "cost"},
	} {
		d, err := client.Check(t.Context(), c.check)
		var invalid *middleware.InvalidError
		if !errors.As(err, &invalid) || invalid.Status != c.status || !strings.Contains(invalid.Detail, c.detail) || d.Allowed {
			t.Errorf("Check(%+v) = %+v, %v; want an error of %d about %s", c.check, d, err, c.status, c.detail)
		}
	}
}

func testKilled(t *testing.T, binary string, closed bool) {
	d := startRegiond(t, binary)
	api := serve(t, d.url, closed)
	d.end(syscall.SIGKILL)
	want := map[bool]int{false: 200, true: 503}[closed]
	for range 3 {
		begun := time.Now()
		got := get(t, api+"/status", "demo-key-acme", "ann")
		if got.status != want || got.header.Get("RateLimit") != "" {
			t.Errorf("without regiond: %d %v, want %d without RateLimit", got.status, got.header, want)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("the answer took %v", took)
		}
	}
	if got := get(t, api+"/status", "guessed", ""); got.status != 403 {
		t.Errorf("an unknown key gets %d without regiond, want 403", got.status)
	}
}

// TestRunEndsWithItsContext, and fails on a bad URL.
func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, "127.0.0.1:0", "http://127.0.0.1:8080", false); err != nil && !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if err := run(ctx, "127.0.0.1:0", "nowhere", false); err == nil || !strings.Contains(err.Error(), "URL") {
		t.Errorf("run with regiond nowhere = %v, want an error about the URL", err)
	}
}
