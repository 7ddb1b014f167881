package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/redisserver"
)

// TestTheWholeProgram takes every call once, on both stores.
func TestTheWholeProgram(t *testing.T) {
	for _, store := range []struct {
		name string
		town func(t *testing.T) string
	}{
		{"redis", func(t *testing.T) string { return onRedis(redisserver.Start(t, redisserver.Options{}).Addr()) }},
		{"memory", func(*testing.T) string { return inMemory() }},
	} {
		t.Run(store.name, func(t *testing.T) {
			p := start(t, store.town(t), "--instance", "one")
			t.Run("check", func(t *testing.T) { testCheck(t, p) })
			t.Run("reset", func(t *testing.T) { testReset(t, p) })
			t.Run("health", func(t *testing.T) { testHealth(t, p) })
			t.Run("regions", func(t *testing.T) { testRegions(t, p, store.name) })
			t.Run("metrics", func(t *testing.T) { testMetrics(t, p) })
		})
	}
}

func testCheck(t *testing.T, p *program) {
	for left := int64(4); left >= 0; left-- {
		a := p.check(t, "acme")
		a.is(t, http.StatusOK)
		d := a.decision(t)
		if !d.Allowed || d.Policy != "standard" || d.Name != "hourly" || d.Limit != 5 || d.Remaining != left || d.rests() != "exact/global" {
			t.Errorf("with %d to be left, the answer is %+v", left, d)
		}
		if got := a.param(t, "RateLimit", "standard.hourly", "r"); got != left {
			t.Errorf("RateLimit says %d, the body %d", got, left)
		}
		if ct := a.header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("Content-Type is %q", ct)
		}
	}
	a := p.check(t, "acme")
	a.is(t, http.StatusTooManyRequests)
	d := a.problem(t)
	if d.Allowed || !strings.HasSuffix(d.Type, "#quota-exceeded") || d.RetryAfterMS < 1 || d.RetryAfterMS > 3_600_000 {
		t.Errorf("the sixth of five is answered with %+v", d)
	}
	wait := a.param(t, "RateLimit", "standard.hourly", "t")
	if exact := (d.RetryAfterMS + 999) / 1000; wait < exact || wait > exact+exact/10+1 {
		t.Errorf("t is %d s, want the body's %d ms in whole seconds and at most a tenth more", wait, d.RetryAfterMS)
	}
	if got := a.header.Get("Retry-After"); got != fmt.Sprint(wait) {
		t.Errorf("Retry-After is %s, t is %d", got, wait)
	}
	if q, w := a.param(t, "RateLimit-Policy", "standard.hourly", "q"), a.param(t, "RateLimit-Policy", "standard.hourly", "w"); q != 5 || w != 3600 {
		t.Errorf("RateLimit-Policy says %d per %d s, want 5 per 3600 s", q, w)
	}
	if got := a.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q, want no-store", got)
	}
}

func testReset(t *testing.T, p *program) {
	p.check(t, "acme").is(t, http.StatusTooManyRequests)
	p.admin.ask(t, http.MethodDelete, "/v1/usage/acme", "").is(t, http.StatusNoContent)
	if left := p.left(t, "acme"); left != 5 {
		t.Errorf("%d of 5 remain after a reset", left)
	}
	p.check(t, "acme").is(t, http.StatusOK)
	// What operators may do, gateways may not.
	p.ask(t, http.MethodDelete, "/v1/usage/acme", "").is(t, http.StatusMethodNotAllowed)
	p.get(t, "/metrics").is(t, http.StatusNotFound)
}

func testHealth(t *testing.T, p *program) {
	a := p.admin.get(t, "/healthz")
	a.is(t, http.StatusOK)
	if a.body != `{"status":"ok"}`+"\n" {
		t.Errorf("/healthz: %s", a.body)
	}
	capture.Eventually(t, func() error {
		if a := p.admin.get(t, "/readyz"); a.status != http.StatusOK || a.body != `{"ready":true,"reasons":[]}`+"\n" {
			return fmt.Errorf("/readyz: %d %s", a.status, a.body)
		}
		return nil
	})
}

var number = regexp.MustCompile(`-?\d+(\.\d+)?([eE][+-]\d+)?`)

func testRegions(t *testing.T, p *program, store string) {
	capture.Eventually(t, func() error { // the first reading of the clock may be under way
		if a := p.admin.get(t, "/v1/regions"); !strings.Contains(a.body, `"valid":true`) {
			return errors.New(a.body)
		}
		return nil
	})
	a := p.admin.get(t, "/v1/regions")
	a.is(t, http.StatusOK)
	head, clock, _ := strings.Cut(a.body, `"clock":`)
	clock, tail, _ := strings.Cut(clock, "}")
	wantHead := fmt.Sprintf(`{"region":"town","instance":"one","version":%q,"config_hash":%q,"mode":{"mode":"global"},"store":{"kind":%q,"available":true,"epoch":%d},`,
		p.daemon.options.Version, p.daemon.hash(), store, p.daemon.state.Store().Epoch)
	if head != wantHead || tail != `,"regions":[{"name":"town","weight":1,"self":true,"state":"self","counted":true,"since_ms":0,"heard_ms":-1,"acked_ms":-1}]}`+"\n" {
		t.Errorf("/v1/regions reads %s", a.body)
	}
	if got := number.ReplaceAllString(clock, "N"); got != `{"valid":true,"offset_ms":N,"uncertainty_ms":N,"drift_ppm":N` {
		t.Errorf("/v1/regions says of the clock: %s", clock)
	}
}

func testMetrics(t *testing.T, p *program) {
	s := p.metrics(t)
	for series, want := range map[string]float64{
		`regiond_config_info{hash="` + p.daemon.hash() + `"}`: 1,
	} {
		if s.series[series] != want {
			t.Errorf("%s is %v, want %v", series, s.series[series], want)
		}
	}
	for _, series := range []string{
		`regiond_decisions_total{basis="exact",decision="allowed",mode="global",policy="standard"}`,
		`regiond_decisions_total{basis="exact",decision="denied",mode="global",policy="standard"}`,
		`regiond_decision_duration_seconds_count`,
		`regiond_http_duration_seconds_count{route="POST /v1/check"}`,
	} {
		if s.series[series] <= 0 {
			t.Errorf("%s is %v, want it counted\n%s", series, s.series[series], s.text)
		}
	}
	for name, kind := range s.types {
		switch {
		case !strings.HasPrefix(name, "regiond_"):
		case strings.Contains(name, "duration") != strings.HasSuffix(name, "_seconds") && kind == "histogram",
			(kind == "counter") != strings.HasSuffix(name, "_total"):
			t.Errorf("%s %s is not named after its unit", kind, name)
		}
	}
	for _, tenant := range []string{"acme", "globex", "initech", "hooli", "watched", "umbrella"} {
		if strings.Contains(s.text, tenant) {
			t.Errorf("/metrics names tenant %s", tenant)
		}
	}
}

// TestServeWithoutConfiguration is the README's first command.
func TestServeWithoutConfiguration(t *testing.T) {
	p := build(t, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	if a := p.daemon.dataAt.Addr().String(); strings.HasSuffix(a, ":8080") {
		t.Errorf("--http is not heard: it listens on %s", a)
	}
	p.run(t)
	a := p.check(t, "acme")
	a.is(t, http.StatusOK)
	if d := a.decision(t); d.rests() != "exact/global" || d.Limit != 20 {
		t.Errorf("the first answer: %+v", d)
	}
	// Nobody configured a gateway, so nobody is let through as one.
	p.ask(t, http.MethodGet, "/v1/authz", "", "X-Tenant: acme").is(t, http.StatusForbidden)
}

// TestGreeting: the command to try works as it is printed, once its capitals are replaced.
func TestGreeting(t *testing.T) {
	g := startGuarded(t)
	certified := startGuardedWith(t, "", func(dir, topology string) string { return replace(t, topology, "  tokens_file: "+dir+"/tokens\n", "") })
	cert, key := certified.clients.issue(t, "gateway")
	certFile, keyFile := filepath.Join(g.dir, "client.pem"), filepath.Join(g.dir, "client.key")
	write(t, certFile, cert)
	write(t, keyFile, key)
	plain := build(t, "--http", "0.0.0.0:0", "--admin", "127.0.0.1:0", "--text")
	plain.run(t)
	listed := start(t, replace(t, inMemory(), "  default: {policy: standard}\n  openly", "  a's: {policy: standard}\n  openly"))
	for name, p := range map[string]*program{"plain": plain, "with a token": g.program, "with a certificate": certified.program, "one tenant": listed} {
		text := banner(p)
		_, command, _ := strings.Cut(text, "curl ")
		command, _, _ = strings.Cut(command, "\n")
		command = strings.NewReplacer("TOKEN", "data-secret", "CERT.pem", certFile, "KEY.pem", keyFile).Replace("curl " + command)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), `{"allowed":true`) {
			t.Errorf("%s: %s: %v: %s", name, command, err, out)
		}
	}
	if text := banner(plain); !strings.Contains(text, "http://"+plain.daemon.adminAt.Addr().String()) || !strings.Contains(text, "in memory") {
		t.Errorf("the banner is\n%s", text)
	}
}

// banner is what a terminal shows at the start.
func banner(p *program) string {
	var text strings.Builder
	p.daemon.options.TextLog = true
	p.daemon.Banner(&text)
	return text.String()
}
