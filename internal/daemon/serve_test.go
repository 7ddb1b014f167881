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

var number = regexp.MustCompile(`-?\d+(\.\d+)?([eE][+-]\d+)?`)

// TestTheWholeProgram takes the calls of a gateway and of an operator once, on both stores.
func TestTheWholeProgram(t *testing.T) {
	for kind, town := range map[string]string{"memory": inMemory(), "redis": onRedis(redisserver.Start(t, redisserver.Options{}).Addr())} {
		t.Run(kind, func(t *testing.T) {
			p := start(t, town)
			for left := int64(4); left >= 0; left-- {
				a := p.check(t, "acme")
				a.is(t, http.StatusOK)
				if d := a.decision(t); !d.Allowed || d.Policy != "standard" || d.Name != "hourly" || d.Limit != 5 || d.Remaining != left || d.rests() != "exact/global" {
					t.Errorf("with %d to be left, the answer is %+v", left, d)
				}
			}
			a := p.check(t, "acme")
			a.is(t, http.StatusTooManyRequests)
			if d := a.decision(t); d.Allowed || !strings.HasSuffix(d.Type, "#quota-exceeded") || d.RetryAfterMS < 1 || d.RetryAfterMS > 3_600_000 {
				t.Errorf("the sixth of five is answered with %+v", d)
			}
			p.admin.ask(t, http.MethodDelete, "/v1/usage/acme", "").is(t, http.StatusNoContent)
			if left := p.left(t, "acme"); left != 5 {
				t.Errorf("%d of 5 remain after a reset", left)
			}
			// What operators may do, gateways may not.
			p.ask(t, http.MethodDelete, "/v1/usage/acme", "").is(t, http.StatusMethodNotAllowed)
			p.get(t, "/metrics").is(t, http.StatusNotFound)

			capture.Eventually(t, func() error { // the first reading of the clock may be under way
				if a = p.admin.get(t, "/v1/regions"); !strings.Contains(a.body, `"valid":true`) {
					return errors.New(a.body)
				}
				return nil
			})
			head, clock, _ := strings.Cut(a.body, `"clock":`)
			clock, tail, _ := strings.Cut(clock, "}")
			wantHead := fmt.Sprintf(`{"region":"town","instance":"one","version":%q,"config_hash":%q,"mode":{"mode":"global"},"store":{"kind":%q,"available":true,"epoch":%d},`,
				p.daemon.options.Version, p.daemon.hash(), kind, p.daemon.state.Store().Epoch)
			if head != wantHead || tail != `,"regions":[{"name":"town","weight":1,"self":true,"state":"self","counted":true,"since_ms":0,"heard_ms":-1,"acked_ms":-1}]}`+"\n" {
				t.Errorf("/v1/regions reads %s", a.body)
			}
			if got := number.ReplaceAllString(clock, "N"); got != `{"valid":true,"offset_ms":N,"uncertainty_ms":N,"drift_ppm":N` {
				t.Errorf("/v1/regions says of the clock: %s", clock)
			}
		})
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
	cert, key := certified.clients.Issue(t, "gateway")
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
