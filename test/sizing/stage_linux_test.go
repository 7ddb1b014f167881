package sizing_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/load"
	"github.com/regiond/regiond/test/redisserver"
	"github.com/regiond/regiond/test/sizing"
)

// plan is what a regiond is asked, and how it is configured.
type plan struct {
	name    string
	limits  []string // of the one policy
	rate    float64
	tenants int
	zipf    float64
	long    time.Duration
}

// measured is what that cost.
type measured struct {
	result *load.Result
	// regiond and redis are µs of processor time per decision, all that the process
	// does meanwhile included.
	regiond, redis float64
	// What Redis holds more than after the warm-up, which has made what does not
	// depend on tenants: bytes, tenants with a log, and usage totals.
	memory, used, totals int64
	resident             int64 // bytes of regiond
}

// units is how many were admitted: the cost is 1.
func (m *measured) units() int64 { return m.result.Allowed }

func (m *measured) price() sizing.Price { return sizing.Price{Regiond: m.regiond, Redis: m.redis} }

// better tells which of two runs of one plan to take prices from.
func (m *measured) better(than *measured) bool {
	all, before := m.result.Answered == m.result.Due, than.result.Answered == than.result.Due
	if all != before {
		return all
	}
	return m.regiond+m.redis < than.regiond+than.redis
}

// remembered is the part of the answers that were denied from memory.
func (m *measured) remembered() float64 {
	for _, a := range m.result.Answers {
		if strings.HasPrefix(a.What, "memory/") {
			return float64(a.N) / float64(m.result.Answered)
		}
	}
	return 0
}

// warmup makes connections and fills caches before anything counts.
const warmup = time.Second

// built is regiond as a file.
func built(tb testing.TB) string {
	tb.Helper()
	binary := filepath.Join(tb.TempDir(), "regiond")
	if out, err := exec.CommandContext(tb.Context(), "go", "build", "-o", binary, "../../cmd/regiond").CombinedOutput(); err != nil {
		tb.Fatalf("build regiond: %v\n%s", err, out)
	}
	return binary
}

// stage is one regiond on one redis-server, both new.
type stage struct {
	redis    *redisserver.Server
	url      string
	pid      int // of regiond
	redisPID int
	end      func()
}

func newStage(tb testing.TB, binary string, limits []string) *stage {
	tb.Helper()
	s := &stage{redis: redisserver.Start(tb, redisserver.Options{})}
	file := filepath.Join(tb.TempDir(), "topology.yaml")
	text := fmt.Sprintf("regions:\n  - {name: one, http: 127.0.0.1:0, admin: 127.0.0.1:0, redis: {addrs: [%q]}}\npolicies:\n  - name: standard\n    limits:\n", s.redis.Addr())
	for _, l := range limits {
		text += "      - {" + l + "}\n"
	}
	text += "tenants: {default: {policy: standard}}\nmax_unknown: 1000000\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	// With these budgets a machine that is busy with other things is not taken for a
	// Redis that is away.
	cmd := exec.Command(binary, "serve", "--config", file, "--region", "one", "--log-format", "json", "--drain", "0s", "--redis-budget", "900ms", "--deadline", "2s")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	s.end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may be gone already
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait()
		s.redis.Kill()
	})
	tb.Cleanup(s.end)
	s.pid = cmd.Process.Pid
	lines := bufio.NewScanner(stderr)
	said := ""
	for s.url == "" && lines.Scan() {
		said += lines.Text() + "\n"
		var line struct{ Msg, HTTP string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "regiond is serving" {
			s.url = line.HTTP
		}
	}
	if s.url == "" {
		tb.Fatalf("regiond did not start:\n%s", said)
	}
	go func() {
		for lines.Scan() { // so that it can go on writing
		}
	}()
	s.redisPID = int(s.info(tb, "server", "process_id"))
	return s
}

// info is a number of Redis's INFO.
func (s *stage) info(tb testing.TB, section, field string) int64 {
	tb.Helper()
	text, err := s.redis.Client().Info(tb.Context(), section).Result()
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "\n"+field+":")
	value, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		tb.Fatalf("INFO %s: %s: %v", section, field, err)
	}
	return n
}

// run carries a plan out. What it costs counts from after the warm-up.
func (p *plan) run(tb testing.TB, binary string) *measured {
	tb.Helper()
	s := newStage(tb, binary, p.limits)
	defer s.end()
	o := load.Options{
		Targets: []string{s.url}, Rate: p.rate, For: p.long, Tenants: p.tenants, Zipf: p.zipf, Prefix: "t", Costs: load.Costs{Min: 1, Max: 1},
		MaxInFlight: 2000, Timeout: 10 * time.Second, Seed: 1,
	}
	asker := load.NewHTTP(o.MaxInFlight, o.Timeout, "", nil)
	defer asker.Close()
	m, warm := &measured{}, o
	warm.For, warm.Seed = warmup, 2
	p.ask(tb, asker, warm)
	memory, used, totals := s.stored(tb)
	before, redisBefore := cpuTime(tb, s.pid), cpuTime(tb, s.redisPID)
	m.result = p.ask(tb, asker, o)
	decisions := float64(m.result.Answered)
	m.regiond = float64((cpuTime(tb, s.pid) - before).Microseconds()) / decisions
	m.redis = float64((cpuTime(tb, s.redisPID) - redisBefore).Microseconds()) / decisions
	m.memory, m.used, m.totals = s.stored(tb)
	m.resident = residentMemory(tb, s.pid)
	m.memory, m.used, m.totals = m.memory-memory, m.used-used, m.totals-totals
	return m
}

// ask runs a load and says what is wrong with the figures of it.
func (p *plan) ask(tb testing.TB, a load.Asker, o load.Options) *load.Result {
	tb.Helper()
	r, err := load.Run(context.WithoutCancel(tb.Context()), o, a, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if r.Answered == 0 {
		tb.Fatalf("nothing was answered: %v", r.Errors)
	}
	if r.Answered < r.Due || len(r.Degraded) > 0 {
		fmt.Printf("%s: %d of %d answered, degraded %v, errors %v: the machine was too busy\n", p.name, r.Answered, r.Due, r.Degraded, r.Errors)
	}
	return r
}

// stored is the memory of Redis without what its connections take, how many tenants
// have a log in it, and how many usage totals there are.
func (s *stage) stored(tb testing.TB) (memory, tenants, totals int64) {
	tb.Helper()
	memory = s.info(tb, "memory", "used_memory") - s.info(tb, "memory", "mem_clients_normal")
	seen := map[string]bool{}
	keys := s.redis.Client().Scan(tb.Context(), 0, "rl:{*", 10_000).Iterator()
	for keys.Next(tb.Context()) {
		tenant, key, _ := strings.Cut(keys.Val(), "}:")
		if strings.HasPrefix(key, "t.") {
			totals++
			continue
		}
		seen[tenant] = true
	}
	if err := keys.Err(); err != nil {
		tb.Fatal(err)
	}
	return memory, int64(len(seen)), totals
}
