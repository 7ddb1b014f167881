package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/cli"
	"github.com/regiond/regiond/internal/daemon"
	"github.com/regiond/regiond/internal/demo"
	"github.com/regiond/regiond/internal/load"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/leaks"
	"github.com/regiond/regiond/test/ports"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// invoke runs the command `demo` as main does.
func invoke(ctx context.Context, screen io.Writer, args ...string) int {
	command := demo.Command(func(o demo.NodeOptions) (demo.Node, error) {
		return daemon.New(&daemon.Options{
			Region: o.Region, Instance: "demo", Processes: 1, WrapBus: o.WrapBus, Transport: o.Transport,
			DemoState: o.State, Demo: o.Control,
			Budget: 4 * time.Second, Deadline: 5 * time.Second, // a pause of the scheduler is no overload
		}, o.Topology, o.Logger, &slog.LevelVar{})
	})
	return cli.Run(ctx, cli.New(cli.Build{}, command), append([]string{"demo"}, args...), screen, screen)
}

// running is a demo that runs inside the test.
type running struct {
	port   int
	screen *capture.Log
	client *http.Client
	end    context.CancelFunc
	exited chan int
}

// freePorts finds a first port with room for all that the demo binds.
func freePorts(t *testing.T) int {
	t.Helper()
	return ports.Take(t, demo.Ports()...)
}

// bindPorts binds all of a demo's fixed ports for a moment.
func bindPorts(t *testing.T, base int) error {
	t.Helper()
	for _, offset := range demo.Ports() {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(base+offset)))
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// start runs a demo until the test ends, once its regions see each other.
func start(t *testing.T, flags ...string) *running {
	t.Helper()
	d := &running{port: freePorts(t), screen: &capture.Log{}, exited: make(chan int, 1), client: &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}}
	ctx, cancel := context.WithCancel(context.Background())
	d.end = cancel
	go func() {
		d.exited <- invoke(ctx, d.screen, append([]string{"--port", strconv.Itoa(d.port)}, flags...)...)
	}()
	t.Cleanup(func() {
		d.stop(t)
		d.client.CloseIdleConnections()
		awaitProbes(t)
		if t.Failed() {
			t.Logf("the demo printed:\n%s", d.screen)
		}
	})
	d.awaitModes(t, "global", "global", "global")
	return d
}

// request calls a region's data listener, or with a path of admin its admin listener.
func (d *running) request(method string, region, offset int, path, body string) (status int, text string, err error) {
	req, err := http.NewRequest(method, fmt.Sprintf("http://127.0.0.1:%d%s", d.port+offset+region, path), strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	res, err := d.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// check spends units of a tenant in a region.
func (d *running) check(t *testing.T, region int, tenant string, cost int) (status int, decision load.Answer) {
	t.Helper()
	status, text, err := d.request(http.MethodPost, region, 0, "/v1/check", fmt.Sprintf(`{"tenant":%q,"cost":%d}`, tenant, cost))
	if err == nil {
		err = json.Unmarshal([]byte(text), &decision)
	}
	if err != nil {
		t.Fatal(err)
	}
	return status, decision
}

// stop ends it as Ctrl-C does, once, and returns how long that took.
func (d *running) stop(t *testing.T) time.Duration {
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

// awaitProbes waits for the probes of gossip, which end by their timeouts.
func awaitProbes(t *testing.T) {
	t.Helper()
	capture.Eventually(t, func() error {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if bytes.Contains(stacks, []byte("memberlist.(*Memberlist).probe")) {
			return errors.New("a probe is still under way")
		}
		return nil
	})
}

// change cuts or heals a region as another terminal does.
func (d *running) change(t *testing.T, verb, name string) string {
	t.Helper()
	var screen capture.Log
	if code := invoke(t.Context(), &screen, verb, name, "--port", strconv.Itoa(d.port)); code != cli.ExitOK {
		t.Fatalf("demo %s %s exits with %d: %s", verb, name, code, &screen)
	}
	return screen.String()
}

// awaitModes waits until the regions report these modes, in the topology's order.
func (d *running) awaitModes(t *testing.T, want ...string) time.Duration {
	t.Helper()
	since := time.Now()
	capture.Eventually(t, func() error {
		for i := range demo.Regions() {
			_, text, err := d.request(http.MethodGet, i, demo.AdminOffset, "/v1/regions", "")
			if err != nil {
				return err
			}
			if !strings.Contains(text, `"mode":{"mode":"`+want[i]+`"`) {
				return fmt.Errorf("region %d is not in mode %s: %s", i, want[i], text)
			}
		}
		return nil
	})
	return time.Since(since)
}

// spends spends one unit after the other until that many were admitted, and checks that
// no more are. It waits for those that it must get: on a busy machine a region may lose
// sight of another for a moment.
func (d *running) spends(t *testing.T, region int, tenant string, units int64) {
	t.Helper()
	var admitted int64
	ask := func() {
		switch status, _ := d.check(t, region, tenant, 1); status {
		case http.StatusOK:
			admitted++
		case http.StatusTooManyRequests:
		default:
			t.Fatalf("status %d", status)
		}
	}
	capture.Eventually(t, func() error {
		if ask(); admitted < units {
			return fmt.Errorf("region %d has admitted %d of %s, want %d", region, admitted, tenant, units)
		}
		return nil
	})
	for range 20 {
		ask()
	}
	if admitted != units {
		t.Errorf("region %d admits %d of %s, want %d", region, admitted, tenant, units)
	}
}

// awaitLeft waits until a region believes that so much is left of a tenant's limit.
func (d *running) awaitLeft(t *testing.T, region int, tenant string, units int64) {
	t.Helper()
	capture.Eventually(t, func() error {
		_, text, err := d.request(http.MethodGet, region, 0, "/v1/usage/"+tenant, "")
		var u load.Answer
		if err := errors.Join(err, json.Unmarshal([]byte(text), &u)); err != nil || u.Remaining != units {
			return fmt.Errorf("region %d believes that %d are left of %s, want %d: %w", region, u.Remaining, tenant, units, err)
		}
		return nil
	})
}

// TestScenario is what the demo's screen suggests to try.
func TestScenario(t *testing.T) {
	const eu, us, ap = 0, 1, 2
	d := start(t, "--quiet")
	capture.Eventually(t, func() error {
		if !strings.Contains(d.screen.String(), "No traffic is made (--quiet).") {
			return errors.New("no table")
		}
		return nil
	})

	// Used up in Europe, denied in the US.
	if status, _ := d.check(t, eu, demo.Acme, 100); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	d.awaitLeft(t, us, demo.Acme, 0)
	if status, got := d.check(t, us, demo.Acme, 1); status != http.StatusTooManyRequests || got.Name != "sustained" || got.Basis != "estimate" {
		t.Errorf("us-east answers %d %+v", status, got)
	}

	// Cut off, each side keeps to its share, and together they keep to the limit.
	if got := d.change(t, "cut", "eu-west"); !strings.Contains(got, "eu-west is cut off from the others") {
		t.Errorf("the cut prints\n%s", got)
	}
	t.Logf("all know of the cut after %v", d.awaitModes(t, "partitioned", "partitioned", "partitioned"))
	shares := region.Shares([]quota.Weight{{Region: "eu-west", Weight: 1}, {Region: "us-east", Weight: 1}, {Region: "ap-south", Weight: 1}}, 100)
	d.spends(t, eu, "hooli", shares[0])
	d.spends(t, us, "hooli", shares[1]+shares[2]) // ap-south is idle and leaves it its own
	d.awaitLeft(t, ap, "hooli", 0)
	if status, _ := d.check(t, eu, demo.Closed, 1); status != http.StatusServiceUnavailable {
		t.Errorf("on_partition: closed answers %d", status)
	}
	if status, _ := d.check(t, us, demo.Open, 100); status != http.StatusOK {
		t.Errorf("on_partition: open answers %d", status)
	}

	// Healed, what was admitted meanwhile is known everywhere.
	d.change(t, "heal", "eu-west")
	t.Logf("all are back after %v", d.awaitModes(t, "global", "global", "global"))
	for region := range demo.Regions() {
		d.awaitLeft(t, region, "hooli", 0)
		d.awaitLeft(t, region, demo.Open, 0)
		d.awaitLeft(t, region, demo.Busy, demo.BusyUnits)
	}
	capture.Eventually(t, func() error {
		if status, _ := d.check(t, eu, demo.Closed, 1); status != http.StatusOK {
			return fmt.Errorf("on_partition: closed answers %d", status)
		}
		return nil
	})
}

// TestTableAndEnd: the table shows what happens, and after Ctrl-C nothing is left.
func TestTableAndEnd(t *testing.T) {
	d := start(t)
	shows := func(what string, row func(words []string) bool) {
		t.Helper()
		capture.Eventually(t, func() error {
			for line := range strings.Lines(d.screen.String()) {
				if words := strings.Fields(line); len(words) >= 5 && row(words) {
					return nil
				}
			}
			return fmt.Errorf("no row shows %s:\n%s", what, d.screen)
		})
	}
	shows("traffic of us-east, which counts on the others", func(words []string) bool {
		return words[0] == "us-east" && words[1] == "global" && words[2] != "0" && words[4] == "eu-west,"
	})
	d.change(t, "cut", "ap-south")
	shows("the cut", func(words []string) bool {
		return words[0] == "ap-south" && words[1] == "partitioned" && words[3] == "34" && words[4] == "nobody:"
	})
	d.end = func() {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}
	if took := d.stop(t); took > 10*time.Second {
		t.Errorf("it takes %v to stop", took)
	}
	d.end = func() {} // nothing handles the signal any more
	if err := bindPorts(t, d.port); err != nil {
		t.Errorf("after its end: %v", err)
	}
	if !strings.HasSuffix(d.screen.String(), "The demo has ended; nothing of it is left.\n") {
		t.Errorf("it ends with\n%s", d.screen)
	}
}

// TestPortInUse: the message names the port and a way out, and what was bound already is
// released.
func TestPortInUse(t *testing.T) {
	base := freePorts(t)
	for _, taken := range []int{base, base + demo.AdminOffset + 2} {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(taken)))
		if err != nil {
			t.Fatal(err)
		}
		var screen capture.Log
		code := invoke(t.Context(), &screen, "--port", strconv.Itoa(base))
		want := fmt.Sprintf("127.0.0.1:%d cannot be used: bind: address already in use; "+
			"if a demo runs already end it, or choose other ports, such as --port %d\n", taken, base+100)
		if code != cli.ExitUsage || !strings.Contains(screen.String(), want) {
			t.Errorf("with port %d in use it exits with %d: %s", taken, code, &screen)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := bindPorts(t, base); err != nil {
			t.Errorf("after that: %v", err)
		}
	}
}

// TestMistakes: each costs exit code 2, and nothing is started. cmd/regiond has them word for word.
func TestMistakes(t *testing.T) {
	for _, line := range []string{"now", "cut", "--port 0", "--log testdata/absent/log", "cut eu-west --port " + strconv.Itoa(freePorts(t))} {
		if code := invoke(t.Context(), &capture.Log{}, strings.Fields(line)...); code != cli.ExitUsage {
			t.Errorf("%s exits with %d", line, code)
		}
	}
}
