package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/gossiptest"
	"github.com/regiond/regiond/test/meshtest"
)

const (
	// oneWay is how long anything takes from one region of a world to another.
	oneWay = 80 * time.Millisecond
)

// world is some regions in a bubble of fake time. Everything in them is what a
// region is made of in production, up to the doors; what stands between them is a
// network of the test's.
//
//	home: a clock, a store     node: limiter, mesh, view, ledger, gossip
//	  eu-west ── node, node …     │ one way: 80 ms, a cut
//	  us-east ── node …              ▼
//	  ap-south ─ node …           bus, air
type world struct {
	t       *testing.T
	bus     *meshtest.Network
	air     *gossiptest.Network
	regions []*nodeRegion
	text    string // topology.yaml
	keys    string // the folder of a key file for each region
	alive   []*node
}

// worldOf has a world's policies: one limit, and what its tenant's answers go by.
func worldOf(units int64, per time.Duration, more string) string {
	return fmt.Sprintf("policies:\n  - name: standard\n    limits: [{name: all, units: %d, per: %v, scope: global%s}]\ntenants:\n  default: {policy: standard}\n",
		units, per, more)
}

// inWorld runs f in a world of three regions with these policies.
func inWorld(t *testing.T, policies string, f func(w *world)) {
	t.Helper()
	worldStores(t, policies, false, f)
}

// onRedises is inWorld with a Redis in each region instead of a memory.
func onRedises(t *testing.T, policies string, f func(w *world)) {
	t.Helper()
	worldStores(t, policies, true, f)
}

func worldStores(t *testing.T, policies string, redises bool, f func(w *world)) {
	t.Helper()
	keys := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, keys: keys, bus: meshtest.NewNetwork(1), air: gossiptest.New(oneWay)}
		names := []string{"eu-west", "us-east", "ap-south"}
		w.bus.SetAll(meshtest.Link{Latency: oneWay}, names...)
		var b strings.Builder
		b.WriteString("regions:\n")
		for i, name := range names {
			s := newNodeRegion(w, name, i, redises)
			w.regions = append(w.regions, s)
			w.bus.Set(name, name, meshtest.Link{Latency: time.Millisecond})
			fmt.Fprintf(&b, "  - {name: %s, http: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", gossip: {bind: %q, advertise: %q, key_file: %q}, redis: %s, nats: {urls: [\"nats://nats:4222\"]}}\n",
				name, s.addr(0), s.addr(0), s.keyFile(), s.redisField())
		}
		w.text = b.String() + policies
		w.keep(keyLine(1))
		defer w.close()
		f(w)
	})
}

// close ends all that runs, so that the bubble can end.
func (w *world) close() {
	for len(w.alive) > 0 {
		w.alive[0].stop()
	}
	for _, s := range w.regions {
		s.close()
	}
	time.Sleep(time.Minute) // gossip's library has probes under way that end by their timeouts
}

// node is one regiond without doors.
type node struct {
	*Daemon
	w    *world
	home *nodeRegion
	addr string
	bus  meshsync.Bus
	log  *capture.Log
	end  func()
}

// worldChange changes what a process is started with.
type worldChange func(o *Options)

// start has a process serve a region from now on, the first of it at the
// topology's address.
func (s *nodeRegion) start(instance string, change ...worldChange) *node {
	s.w.t.Helper()
	p := s.make(instance, change...)
	if err := p.adopt(context.Background()); err != nil {
		s.w.t.Fatal(err)
	}
	p.run()
	s.processes = append(s.processes, p)
	s.w.alive = append(s.w.alive, p)
	return p
}

// attempt starts a process that is expected to be refused, and returns why.
func (s *nodeRegion) attempt(instance string) error {
	s.w.t.Helper()
	p := s.make(instance)
	return errors.Join(p.adopt(context.Background()), p.Close())
}

func (s *nodeRegion) make(instance string, change ...worldChange) *node {
	s.w.t.Helper()
	p := &node{w: s.w, home: s, log: &capture.Log{}, addr: s.addr(s.started)}
	s.started++
	bus := s.w.bus.Join(s.name)
	o := &Options{
		Region: s.name, Instance: instance, Processes: 1, memoryUS: s.nowUS, dialRedis: s.dial,
		Transport: s.w.air.Transport(p.addr), WrapBus: func(meshsync.Bus) meshsync.Bus { return bus },
	}
	for _, f := range change {
		f(o)
	}
	top, _, err := region.Parse("topology.yaml", []byte(s.w.text))
	if err != nil {
		s.w.t.Fatal(err)
	}
	for i := range top.Regions {
		top.Regions[i].NATS = region.NATS{Embedded: true} // nothing in a bubble may dial or listen
	}
	p.bus = bus
	if p.Daemon, err = assemble(o, top, slog.New(slog.NewTextHandler(p.log, nil)), &slog.LevelVar{}); err != nil {
		s.w.t.Fatal(err)
	}
	return p
}

func (p *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	p.serving.Store(true)
	go func() { ended <- runComponents(ctx, p.components()) }()
	p.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			p.w.t.Errorf("%s/%s ended with %v", p.home.name, p.options.Instance, err)
		}
		if err := p.Close(); err != nil {
			p.w.t.Errorf("%s/%s: close: %v", p.home.name, p.options.Instance, err)
		}
	})
}

// stop ends it as SIGTERM does: it publishes that it leaves.
func (p *node) stop() {
	p.end()
	p.gone(&p.home.processes)
	p.gone(&p.w.alive)
}

func (p *node) gone(from *[]*node) {
	for i, other := range *from {
		if other == p {
			*from = append((*from)[:i:i], (*from)[i+1:]...)
			return
		}
	}
}

// kill ends it as SIGKILL does: nobody hears of it.
func (p *node) kill() {
	p.bus.(*meshtest.Bus).Leave()
	p.w.air.Unplug(p.addr)
	p.stop()
}

// startAll starts a process in each region and waits until all see all.
func (w *world) startAll() {
	w.t.Helper()
	for _, s := range w.regions {
		s.start("one")
	}
	w.await("every region sees every other", 10*time.Second, w.global)
}

// global reports whether all processes are in mode global.
func (w *world) global() bool {
	for _, p := range w.alive {
		if p.mode() != quota.ModeGlobal {
			return false
		}
	}
	return true
}

// mode is that in which the process decides now, for a policy that shares.
func (p *node) mode() quota.Mode {
	mode, _ := p.replication.ceilings.View().Mode(quota.FailShare)
	return mode
}

// await lets time pass until done, and returns how much.
func (w *world) await(what string, most time.Duration, done func() bool) time.Duration {
	w.t.Helper()
	return w.awaitBy(what, most, 10*time.Millisecond, done)
}

func (w *world) awaitBy(what string, most, step time.Duration, done func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for {
		synctest.Wait()
		took := time.Since(began)
		if done() {
			return took
		}
		if took > most {
			for _, p := range w.alive {
				w.t.Logf("%s/%s said:\n%s", p.home.name, p.options.Instance, p.log)
			}
			w.t.Fatalf("%s: not within %v", what, most)
		}
		time.Sleep(step)
	}
}

// cut cuts, or with false heals, the way from one region to another, one way.
func (w *world) cut(from, to int, yes bool) {
	a, b := w.regions[from], w.regions[to]
	w.bus.Set(a.name, b.name, meshtest.Link{Latency: oneWay, Cut: yes})
	for i := range maxWorldProcesses {
		for j := range maxWorldProcesses {
			w.air.Cut(a.addr(i), b.addr(j), yes)
		}
	}
}

// isolate cuts a region off from all others, both ways, or has them meet again.
func (w *world) isolate(region int, yes bool) {
	for other := range w.regions {
		if other != region {
			w.cut(region, other, yes)
			w.cut(other, region, yes)
		}
	}
}
