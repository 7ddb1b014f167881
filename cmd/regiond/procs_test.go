//go:build unix

package main

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/test/redisserver"
)

// TestProcs runs three regions as they are run in earnest: each a regiond of its
// own on a Redis of its own, joined by a NATS server and by gossip, all of them
// processes. Faults are done to the processes; what all regions believe of each
// other afterwards is held against what was admitted, unit by unit.
func TestProcs(t *testing.T) {
	binary := built(t)
	for _, part := range []struct {
		name string
		test func(t *testing.T, binary string)
	}{
		{"NATS is killed", testProcsKilledNATS},
		{"NATS is frozen", testProcsFrozenNATS},
		{"NATS is frozen, then killed", testProcsFrozenKilledNATS},
		{"a second process joins and leaves", testProcsSecondLeaves},
		{"a second process joins and is killed", testProcsSecondKilled},
		{"a Redis is flushed", testProcsFlushed},
		{"a Redis is killed", testProcsKilledRedis},
		{"a regiond is killed", testProcsKilled},
		{"a regiond with its own NATS is killed", testProcsKilledGateway},
		{"a regiond with its own NATS is frozen", testProcsFrozenGateway},
		{"one limit for all", testProcsExact},
		{"two of one name", testProcsNamesakes},
		{"strangers", testProcsStrangers},
		{"poison", testProcsPoison},
		{"weights are changed", testProcsWeights},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, binary) })
	}
}

const (
	// procsUnits is L of every partition, far above what a test spends.
	procsUnits = 3000
	// procsTenants is how many partitions there are.
	procsTenants = 500
)

// procsNames are the regions.
func procsNames() []string { return []string{"eu-west", "us-east", "ap-south"} }

// fault is how long faults last: a minute with REGIOND_LONG=1, otherwise d.
func fault(d time.Duration) time.Duration {
	if os.Getenv("REGIOND_LONG") == "1" {
		return time.Minute
	}
	return d
}

// globe is three regions.
type globe struct {
	binary  string
	dir     string
	key     string       // of gossip, in a file
	nats    *natsProcess // nil when each regiond has its own
	regions []*place
	tally   *tally
}

// place is one region: its Redis, its file, and its processes.
type place struct {
	name   string
	redis  *redisserver.Server
	gossip string // address of the process at the topology's
	file   string
	first  *process // that one

	mu    sync.Mutex
	doors []*process // who is asked; guarded by mu
}

// newGlobe starts three regions that see each other. Without nats each process has
// a NATS server of its own, joined with the others by gateways.
func newGlobe(t *testing.T, binary string, withNATS bool) *globe {
	t.Helper()
	g := &globe{binary: binary, dir: t.TempDir(), tally: newTally()}
	g.key = g.newKey(t, "key")
	if withNATS {
		g.nats = startNATS(t, freeAddr(t))
	}
	for _, name := range procsNames() {
		g.regions = append(g.regions, &place{
			name: name, redis: redisserver.Start(t, redisserver.Options{}),
			gossip: freeAddr(t), file: filepath.Join(g.dir, name+".yaml"),
		})
	}
	began := time.Now()
	for _, p := range g.regions {
		write(t, p.file, g.topology())
		p.first = g.launch(t, p, "one")
		p.open(p.first)
	}
	for _, p := range g.regions {
		p.first.ready(t)
	}
	g.global(t, "the first was started", began)
	return g
}

// newKey writes a key for gossip and gateways.
func (g *globe) newKey(t *testing.T, name string) string {
	t.Helper()
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(rand.Uint32())
	}
	file := filepath.Join(g.dir, name)
	write(t, file, base64.StdEncoding.EncodeToString(key)+"\n")
	return file
}

// topology is the file of all three. The window is a month: what is spent at its
// beginning counts whole for as long as a test runs, since fading is rounded up.
func (g *globe) topology() string {
	b := &strings.Builder{}
	b.WriteString("cluster: procs\nregions:\n")
	for _, p := range g.regions {
		nats := "{embedded: true}"
		if g.nats != nil {
			nats = fmt.Sprintf("{urls: [%q]}", g.nats.url())
		}
		fmt.Fprintf(b, "  - name: %s\n    weight: 1\n    http: 127.0.0.1:0\n    admin: 127.0.0.1:0\n", p.name)
		fmt.Fprintf(b, "    gossip: {bind: %q, advertise: %q, key_file: %q}\n", p.gossip, p.gossip, g.key)
		fmt.Fprintf(b, "    redis: {addrs: [%q]}\n    nats: %s\n", p.redis.Addr(), nats)
	}
	fmt.Fprintf(b, "policies:\n  - name: standard\n    limits: [{name: monthly, units: %d, per: 720h, scope: global}]\n", procsUnits)
	b.WriteString("tenants: {default: {policy: standard}}\n")
	return b.String()
}

// launch starts a process of a region. Its budgets leave room for a busy machine,
// and still answer within a second.
func (g *globe) launch(t *testing.T, p *place, instance string, flags ...string) *process {
	t.Helper()
	return launch(t, g.binary, append([]string{
		"--config", p.file, "--region", p.name, "--instance", instance,
		"--redis-budget", "500ms", "--deadline", "900ms", "--drain", "500ms",
	}, flags...)...)
}

// start launches a process and waits until it is ready.
func (g *globe) start(t *testing.T, p *place, instance string, flags ...string) *process {
	t.Helper()
	one := g.launch(t, p, instance, flags...)
	one.ready(t)
	return one
}

func (p *process) ready(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if a := p.admin.get(t, "/readyz"); a.status != http.StatusOK {
			return fmt.Errorf("/readyz: %d %s", a.status, a.body)
		}
		return nil
	})
}

// open has a process asked, and shut no longer.
func (p *place) open(one *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doors = append(p.doors, one)
}

func (p *place) shut(one *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var rest []*process
	for _, door := range p.doors {
		if door != one {
			rest = append(rest, door)
		}
	}
	p.doors = rest
}

// door is any process of the region that is asked; nil when none is.
func (p *place) door() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.doors) == 0 {
		return nil
	}
	return p.doors[rand.IntN(len(p.doors))]
}

// freeAddr is an address where nobody listens, neither on its port nor, for an
// embedded NATS, on the next, below those that outgoing connections are given.
func freeAddr(t *testing.T) string {
	t.Helper()
	port := 0
	for tries := 0; port == 0 || !isFree(port) || !isFree(port+1); tries++ {
		if tries == 50 {
			t.Fatal("no free port found")
		}
		port = 16384 + 2*rand.IntN(8000)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func isFree(port int) bool {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		return false
	}
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	_ = u.Close()
	return true
}
