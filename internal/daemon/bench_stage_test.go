//go:build unix

package daemon

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/test/redisserver"
)

// stage is what a regiond is measured on.
type benchStage struct {
	redis *redisserver.Server
	dir   string
	crowd benchCrowd // of each region
	asked int        // tenants that are asked for over HTTP; the rest of our crowd changes by itself

	policies string // what the topology ends in
}

func newBenchStage(tb testing.TB, c benchCrowd, asked int) *benchStage {
	tb.Helper()
	return &benchStage{redis: redisserver.Start(tb, redisserver.Options{}), dir: tb.TempDir(), crowd: c, asked: asked, policies: benchStandard()}
}

// benchProcess is a child.
type benchProcess struct {
	cmd   *exec.Cmd
	input io.Closer
	addrs []string // where it listens
}

// begin starts a child and waits for its addresses.
func beginBench(tb testing.TB, c benchChild) *benchProcess {
	tb.Helper()
	config, err := json.Marshal(c)
	if err != nil {
		tb.Fatal(err)
	}
	p := &benchProcess{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), benchEnv+"="+string(config))
	p.cmd.Stderr = os.Stderr
	input, err := p.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p.input = input
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		p.end()
		tb.Fatalf("a process of the benchmark did not start: %v", err)
	}
	p.addrs = strings.Fields(line)
	return p
}

// patience is how long a child may take to end by itself.
const benchPatience = 15 * time.Second

// end has a child end, by force if it does not by itself.
func (p *benchProcess) end() {
	_ = p.input.Close()
	kill := time.AfterFunc(benchPatience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait()
}

// scene is a regiond that runs, with the mesh around it or without.
type benchScene struct {
	around *benchProcess // nil without
	one    *benchProcess
	door   *benchAsker
	admin  *benchAsker
}

// open starts regiond on an empty Redis and waits until all that it should know has
// reached it.
func (s *benchStage) open(tb testing.TB, meshed bool) *benchScene {
	tb.Helper()
	if err := s.redis.Client().FlushAll(tb.Context()).Err(); err != nil {
		tb.Fatal(err)
	}
	sc := &benchScene{}
	child, nats := benchChild{}, ""
	if meshed {
		sc.around = beginBench(tb, benchChild{Crowd: s.crowd})
		nats = sc.around.addrs[0]
		child.Crowd = s.own()
	}
	s.serve(tb, sc, child, nats)
	if meshed {
		sc.await(tb, s.crowd.Count)
	}
	return sc
}

// serve starts regiond itself, with the NATS at that address.
func (s *benchStage) serve(tb testing.TB, sc *benchScene, child benchChild, nats string) {
	tb.Helper()
	file := filepath.Join(s.dir, "topology.yaml")
	if err := os.WriteFile(file, []byte(benchTopology(s.redis.Addr(), nats, s.policies)), 0o600); err != nil {
		tb.Fatal(err)
	}
	// With these budgets a machine that is busy with other things is not taken for a
	// Redis that is away.
	child.Serve = []string{
		"--config", file, "--region", benchSelf, "--instance", "one", "--drain", "0s",
		"--redis-budget", "900ms", "--deadline", "2s",
	}
	sc.one = beginBench(tb, child)
	sc.door, sc.admin = newBenchAsker(sc.one.addrs[0], s.asked), newBenchAsker(sc.one.addrs[1], s.asked)
}

// own is the part of our region's crowd that changes without being asked for.
func (s *benchStage) own() benchCrowd {
	c := s.crowd
	c.First, c.Count = s.asked, c.Count-s.asked
	c.Changed = s.crowd.Changed * c.Count / s.crowd.Count
	return c
}

func (sc *benchScene) close() {
	for _, a := range []*benchAsker{sc.door, sc.admin} {
		a.client.CloseIdleConnections()
	}
	sc.one.end()
	if sc.around != nil {
		sc.around.end()
	}
}

// await waits until regiond sees all regions and knows so many partitions.
func (sc *benchScene) await(tb testing.TB, series int) {
	tb.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		v, err := sc.regions()
		if err == nil && v.Mode.Mode == "global" && v.Totals != nil && v.Totals.Series >= series {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("after a minute regiond does not know the others: %v, %+v", err, v)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (sc *benchScene) regions() (*status.Report, error) {
	v := &status.Report{}
	status, body, err := sc.admin.get("/v1/regions")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/v1/regions: %d %s", status, body)
	}
	return v, errors.Join(err, json.Unmarshal(body, v))
}

// metric is the sum of what /metrics shows under a name, of all that have a label.
func (sc *benchScene) metric(tb testing.TB, name, label string) float64 {
	tb.Helper()
	_, body, err := sc.admin.get("/metrics")
	if err != nil {
		tb.Fatal(err)
	}
	sum, found := 0.0, false
	for line := range strings.Lines(string(body)) {
		sample, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		bare, labels, _ := strings.Cut(sample, "{")
		if bare != name || !strings.Contains(labels, label) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			tb.Fatalf("%s: %v", line, err)
		}
		sum, found = sum+n, true
	}
	if !found {
		tb.Fatalf("/metrics has no %s with %q", name, label)
	}
	return sum
}
