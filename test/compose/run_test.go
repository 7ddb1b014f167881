//go:build compose

package compose

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// timeout is how long anything may take before the test gives up on it. What the
// goals are is printed beside what was measured: a machine that does other things
// too may miss them, and nothing else changes.
const timeout = 30 * time.Second

// spreadGoal is for how long a change that matters is on its way.
const spreadGoal = 200 * time.Millisecond

// Ours are the regions of topology.yaml; the first has half of all weights.
var ours = []string{"eu-west", "us-east", "ap-south"}

func TestThreeRegions(t *testing.T) {
	p := newProject(t)
	start := time.Now()
	p.compose(t, "build", "regiond-eu-west") // the image of all three
	t.Logf("image built:                   %8.1f s", time.Since(start).Seconds())
	t.Run("the image is small and says what it is", image)
	start = time.Now()
	p.compose(t, "--profile", "gateways", "up", "--detach", "--no-build")
	t.Logf("twelve containers up:         %8.1f s", time.Since(start).Seconds())
	for _, r := range ours {
		p.await(t, r, "watcher", func(a answer) bool { return a.Mode == "global" })
	}

	t.Run("a limit spent in one region is spent in all", func(t *testing.T) { spend(t, p) })
	t.Run("nginx limits its customers", func(t *testing.T) { gateway(t, p) })
	t.Run("regions reach each other by gossip and gateways only", func(t *testing.T) { isolation(t, p) })
	t.Run("redis refuses nothing that regiond asks", func(t *testing.T) { permissions(t, p) })
	t.Run("prometheus reads all regions", func(t *testing.T) { scrape(t, p) })
}

// imageLimit is the size that docs/deploy.md states.
const imageLimit = 60e6

// image is what an engine reads of the image that docker-compose.multi.yml builds, and what the program in it reports.
func image(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "docker", "image", "inspect", "regiond:compose-test").Output()
	if err != nil {
		t.Fatal(err)
	}
	var images []struct {
		Size   int64
		Config struct {
			User        string
			Labels      map[string]string
			Healthcheck *struct{ Test []string }
		}
	}
	if err := json.Unmarshal(out, &images); err != nil || len(images) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	i := images[0]
	t.Logf("image: %d MB", i.Size/1e6)
	if i.Size > imageLimit || i.Config.User != "65532:65532" || i.Config.Healthcheck == nil {
		t.Errorf("the image has %d bytes, at most %d are stated; user %q, health check %v", i.Size, int64(imageLimit), i.Config.User, i.Config.Healthcheck)
	}
	if v := i.Config.Labels["org.opencontainers.image.version"]; v != "compose-test" {
		t.Errorf("its version is labelled %q", v)
	}
	run := exec.CommandContext(t.Context(), "docker", "run", "--rm", "--read-only", "--network", "none", "--cap-drop", "ALL", "regiond:compose-test", "version")
	if out, err := run.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "regiond compose-test, ") {
		t.Errorf("its program reports %s (%v)", out, err)
	}
}

// spend reports the whole of a global limit in one region, and waits for the
// others to deny.
func spend(t *testing.T, p *project) {
	tenant := p.fill(t, "eu-west", "spender", 30)
	since := time.Now()
	for _, r := range ours[1:] {
		p.await(t, r, tenant, func(a answer) bool { return a.sustained() == 0 })
		t.Logf("600 used in eu-west, seen in %-8s %6.0f ms, goal %d ms", r, ms(time.Since(since)), spreadGoal.Milliseconds())
		a := p.check(t, r, tenant)
		if a.Status != 429 || a.Name != "sustained" {
			t.Errorf("%s: %+v, want a denial by sustained", r, a)
		}
	}
}

// known is an answer that was decided in Redis: a busy machine may miss its budget
// of 10 ms, and the next question is answered again.
func known(a answer) bool { return a.Mode != "local" }

// openAtMost is how many answers of nginx may lack the RateLimit fields: it lets a
// request pass that regiond has not answered within 100 ms.
const openAtMost = 10

// gateway is a customer's view of nginx.
func gateway(t *testing.T, p *project) {
	for _, r := range ours {
		url := "http://" + p.port(t, "nginx-"+r, "8080") + "/"
		eventually(t, r+" wants a key", func() (bool, string) {
			status, _, err := get(t, url, "")
			return status == 401, fmt.Sprint(status, err)
		})
		allowed, open := 0, 0
		eventually(t, r+" limits its customer", func() (bool, string) {
			status, header, err := get(t, url, "demo-key-hobby")
			limited := header.Get("RateLimit") != "" && header.Get("RateLimit-Policy") != ""
			switch {
			case err != nil:
				return false, err.Error()
			case status == 200 && limited:
				allowed++
			case status == 200:
				open++
			case status != 429 || !limited || header.Get("Retry-After") == "":
				t.Fatalf("%s: %d %v, want 429 with Retry-After and RateLimit fields", r, status, header)
			default:
				t.Logf("nginx of %-8s 429 after %d requests, Retry-After %s", r, allowed, header.Get("Retry-After"))
				return true, ""
			}
			return false, fmt.Sprintf("%d allowed, %d without RateLimit fields", allowed, open)
		})
		if allowed+open < 20 || open > openAtMost {
			t.Errorf("%s: %d allowed before the first 429, want 20 at least; %d without RateLimit fields, want %d at most", r, allowed, open, openAtMost)
		}
	}
}

// isolation looks at eu-west from us-east.
func isolation(t *testing.T, p *project) {
	for address, want := range map[string]bool{
		"nats.eu-west.wan:7222":        true,
		"regiond.eu-west.wan:7946":     true,
		"regiond.eu-west.wan:8080":     false,
		"regiond.eu-west.wan:9090":     false,
		"regiond.eu-west.observe:9090": false,
		"nats.eu-west.wan:4222":        false,
		"regiond.eu-west:8080":         false,
		"nats.eu-west:4222":            false,
		"redis.eu-west:6379":           false,
		"regiond.us-east.observe:9090": true, // its own, to show that the question works
		"regiond.us-east:9090":         false,
	} {
		if got, why := p.reaches(t, "regiond-us-east", address); got != want {
			t.Errorf("us-east reaches %s: %v, want %v (%s)", address, got, want, why)
		}
	}
}

// permissions asks Redis what it has refused its user.
func permissions(t *testing.T, p *project) {
	for _, r := range ours {
		refused := p.acls(t, "redis-"+r)
		if refused != "" {
			t.Errorf("redis-%s: %s", r, refused)
		}
	}
}

// scrape starts Prometheus and waits until it has read all regions.
func scrape(t *testing.T, p *project) {
	p.compose(t, "--profile", "observe", "up", "--detach", "--no-deps", "prometheus")
	prometheus := "http://" + p.port(t, "prometheus", "9090")
	want := fmt.Sprintf(`"%d"`, len(ours))
	eventually(t, "prometheus has read "+want+" regions", func() (bool, string) {
		return bodyHas(prometheus+"/api/v1/query?query=sum(regiond_bus_connected)", want)
	})
	for where, open := range map[[3]string]bool{
		{"regiond-eu-west", "observe-eu-west", "9090"}: true,
		{"regiond-eu-west", "eu-west", "8080"}:         false,
		{"redis-eu-west", "eu-west", "6379"}:           false,
		{"nats-eu-west", "eu-west", "4222"}:            false,
	} {
		if answer := p.sends(t, "prometheus", p.address(t, where[0], where[1]), where[2], "GET / HTTP/1.0\r\n\r\n"); (answer != "") != open {
			t.Errorf("prometheus receives %q from %v, want an answer %v", answer, where, open)
		}
	}
	admin := p.address(t, "regiond-eu-west", "observe-eu-west")
	for name, token := range map[string]string{"no": "", "a wrong": "wrong", "your": p.secret(t, "admin.token"), "its own": p.secret(t, "prometheus.token")} {
		for _, path := range []string{"/metrics", "/v1/regions", "/readyz"} {
			request := "GET " + path + " HTTP/1.0\r\nHost: regiond.eu-west.observe:9090\r\nAuthorization: Bearer " + token + "\r\n\r\n"
			want := " 401 "
			switch {
			case path == "/v1/regions" && name == "its own": // it reads metrics alone
				want = " 403 "
			case len(token) > len("wrong") || path == "/readyz":
				want = " 200 "
			}
			if line, _, _ := strings.Cut(p.sends(t, "prometheus", admin, "9090", request), "\n"); !strings.Contains(line, want) {
				t.Errorf("%s with %s token answers %q, want%s", path, name, line, want)
			}
		}
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
