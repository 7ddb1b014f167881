package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/cli"
	"github.com/regiond/regiond/internal/demo"
	"github.com/regiond/regiond/region"
)

// demoTown is a demo that runs inside the test, as its command runs it.
type demoTown struct {
	port    int
	screen  *journal
	regions map[string]client // data listeners
	admins  map[string]client
	end     context.CancelFunc
	exited  chan int
}

// demoPorts finds a first port with room for all that the demo binds. It is below
// those that systems give to outgoing connections.
func demoPorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		base := 10_000 + rand.N(8_000)
		if demoPortsFree(t, base) == nil {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

// demoPortsFree binds all of a demo's fixed ports for a moment.
func demoPortsFree(t *testing.T, base int) error {
	t.Helper()
	ports := []int{base + demo.ControlOffset}
	for i := range demo.Regions() {
		ports = append(ports, base+i, base+demo.AdminOffset+i)
	}
	for _, port := range ports {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

func startDemo(t *testing.T, flags ...string) *demoTown {
	t.Helper()
	d := &demoTown{
		port: demoPorts(t), screen: &journal{}, exited: make(chan int, 1),
		regions: map[string]client{}, admins: map[string]client{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.end = cancel
	go func() {
		d.exited <- dispatch(ctx, append([]string{"demo", "--port", strconv.Itoa(d.port)}, flags...), d.screen, d.screen)
	}()
	t.Cleanup(func() {
		d.stop(t)
		awaitProbes(t)
		if t.Failed() {
			t.Logf("the demo said:\n%s", d.screen)
		}
	})
	for i, name := range demo.Regions() {
		d.regions[name] = newClient(t, fmt.Sprintf("http://127.0.0.1:%d", d.port+i), nil)
		d.admins[name] = newClient(t, fmt.Sprintf("http://127.0.0.1:%d", d.port+demo.AdminOffset+i), nil)
	}
	d.awaitModes(t, "global", "global", "global")
	return d
}

// stop ends it as Ctrl-C does, once, and returns how long that took.
func (d *demoTown) stop(t *testing.T) time.Duration {
	t.Helper()
	asked := time.Now()
	d.end()
	code, ok := <-d.exited
	if ok && code != cli.ExitOK {
		t.Errorf("the demo exits with %d:\n%s", code, d.screen)
	}
	if ok {
		close(d.exited)
	}
	return time.Since(asked)
}

// awaitProbes waits for what gossip leaves behind: a probe into a cut ends by
// itself, when it times out.
func awaitProbes(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if bytes.Contains(stacks, []byte("memberlist.(*Memberlist).probe")) {
			return errors.New("a probe is still under way")
		}
		return nil
	})
}

// change cuts or heals a region as another terminal does.
func (d *demoTown) change(t *testing.T, verb, name string) said {
	t.Helper()
	got := invoke(t, "demo", verb, name, "--port", strconv.Itoa(d.port))
	if got.code != cli.ExitOK || got.stderr != "" {
		t.Fatalf("demo %s %s: %+v", verb, name, got)
	}
	return got
}

// awaitModes waits until the regions say that they are in these modes, in the
// topology's order, and returns how long that took.
func (d *demoTown) awaitModes(t *testing.T, want ...string) time.Duration {
	t.Helper()
	since := time.Now()
	eventually(t, func() error {
		for i, name := range demo.Regions() {
			a, err := d.admins[name].try(t.Context(), http.MethodGet, "/v1/regions", "")
			if err != nil {
				return err
			}
			if !strings.Contains(a.body, `"mode":{"mode":"`+want[i]+`"`) {
				return fmt.Errorf("%s is not in mode %s: %s", name, want[i], a.body)
			}
		}
		return nil
	})
	return time.Since(since)
}

// spends asks for one unit after the other until that many were admitted, and then
// sees that no more are. It waits for those that it must get: on a machine that
// runs other tests, a region may lose sight of another for a moment.
func (d *demoTown) spends(t *testing.T, name, tenant string, units int64) {
	t.Helper()
	var admitted int64
	ask := func() {
		switch a := d.regions[name].check(t, tenant); a.status {
		case http.StatusOK:
			admitted++
		case http.StatusTooManyRequests:
		default:
			t.Fatalf("%s answers %d %s", name, a.status, a.body)
		}
	}
	eventually(t, func() error {
		if ask(); admitted < units {
			return fmt.Errorf("%s has admitted %d of %s, want %d", name, admitted, tenant, units)
		}
		return nil
	})
	for range 20 {
		ask()
	}
	if admitted != units {
		t.Errorf("%s admits %d of %s, want %d", name, admitted, tenant, units)
	}
}

// awaitLeft waits until a region believes that so much is left of a tenant's limit.
func (d *demoTown) awaitLeft(t *testing.T, name, tenant string, units int64) {
	t.Helper()
	eventually(t, func() error {
		if left := d.regions[name].left(t, tenant); left != units {
			return fmt.Errorf("%s believes that %d are left of %s, want %d", name, left, tenant, units)
		}
		return nil
	})
}

// TestDemoNewcomersStory is what somebody sees who follows the demo's screen.
func TestDemoNewcomersStory(t *testing.T) {
	d := startDemo(t, "--quiet")

	// Used up in Europe, denied in the US.
	d.regions["eu-west"].ask(t, http.MethodPost, "/v1/check", `{"tenant":"acme","cost":100}`).is(t, http.StatusOK)
	d.awaitLeft(t, "us-east", "acme", 0)
	a := d.regions["us-east"].check(t, "acme")
	a.is(t, http.StatusTooManyRequests)
	if got := a.problem(t); got.Name != "sustained" || got.Basis != "estimate" {
		t.Errorf("us-east denies with %+v", got)
	}

	// Cut off, each side keeps to its parts, and together they keep to the limit.
	if got := d.change(t, "cut", "eu-west"); !strings.Contains(got.stdout, "eu-west is cut off from us-east and ap-south") {
		t.Errorf("the cut says\n%s", got.stdout)
	}
	t.Logf("all know of the cut after %v", d.awaitModes(t, "partitioned", "partitioned", "partitioned"))
	parts := region.Parts([]int64{1, 1, 1}, 100)
	d.spends(t, "eu-west", "hooli", parts[0])
	d.spends(t, "us-east", "hooli", parts[1]+parts[2]) // ap-south is idle and leaves it its own
	d.awaitLeft(t, "ap-south", "hooli", 0)
	d.regions["ap-south"].check(t, "hooli").is(t, http.StatusTooManyRequests)
	if got := d.regions["eu-west"].check(t, "initech"); got.status != http.StatusServiceUnavailable {
		t.Errorf("on_partition: closed answers %d %s", got.status, got.body)
	}
	d.regions["us-east"].ask(t, http.MethodPost, "/v1/check", `{"tenant":"globex","cost":100}`).is(t, http.StatusOK)

	// Healed by nobody, and what was admitted meanwhile is known everywhere.
	d.change(t, "heal", "eu-west")
	t.Logf("all are back after %v", d.awaitModes(t, "global", "global", "global"))
	for _, name := range demo.Regions() {
		d.awaitLeft(t, name, "hooli", 0)
		d.awaitLeft(t, name, "globex", 0)
	}
	eventually(t, func() error {
		if a := d.regions["eu-west"].check(t, "initech"); a.status != http.StatusOK {
			return fmt.Errorf("on_partition: closed answers %d %s", a.status, a.body)
		}
		return nil
	})
}

// TestDemoTable: what the table shows is what happens, and nothing is left of it
// when it ends.
func TestDemoTable(t *testing.T) {
	d := startDemo(t)
	shows := func(what string, row func(words []string) bool) {
		t.Helper()
		eventually(t, func() error {
			for line := range strings.Lines(d.screen.String()) {
				if words := strings.Fields(line); len(words) == 8 && words[0] != "REGION" && row(words) {
					return nil
				}
			}
			return fmt.Errorf("no row shows %s:\n%s", what, d.screen)
		})
	}
	shows("traffic of us-east, which eu-west knows", func(words []string) bool {
		return words[0] == "eu-west" && words[1] != "0" && words[4] != "0" && words[7] == "global"
	})
	d.change(t, "cut", "ap-south")
	shows("the cut", func(words []string) bool {
		return words[0] == "ap-south" && words[6] == "200" && words[7] == "partitioned"
	})
	d.change(t, "heal", "ap-south")
	for line := range strings.Lines(d.screen.String()) {
		if len(line) > demo.Width+1 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	if took := d.stop(t); took > 10*time.Second {
		t.Errorf("it takes %v to stop", took)
	} else {
		t.Logf("it stops in %v", took)
	}
	if err := demoPortsFree(t, d.port); err != nil {
		t.Errorf("after its end: %v", err)
	}
	if !strings.HasSuffix(d.screen.String(), "The demo has ended; nothing of it is left.\n") {
		t.Errorf("it ends with\n%s", d.screen)
	}
}

// TestDemoQuiet: nobody spends, and every region says so.
func TestDemoQuiet(t *testing.T) {
	d := startDemo(t, "--quiet")
	eventually(t, func() error {
		if n := strings.Count(d.screen.String(), "No traffic is made (--quiet)."); n < 2 {
			return fmt.Errorf("%d tables", n)
		}
		return nil
	})
	for _, name := range demo.Regions() {
		if left := d.regions[name].left(t, demo.Busy); left != demo.BusyUnits {
			t.Errorf("%s: %d of %d are left", name, left, demo.BusyUnits)
		}
	}
}
