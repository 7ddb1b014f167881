package sync_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/meshtest"
	"github.com/regiond/regiond/test/meters"
)

// The store clocks of the world begin here; each process's monotonic clock begins
// at an hour.
const startUS = int64(1_700_000_000_000_000)

// world is some processes on one network, in a synctest bubble.
type world struct {
	t       *testing.T
	net     *meshtest.Network
	began   time.Time
	regions []string
	chunk   int // counters in a chunk of a snapshot; 0: as many as the mesh wants

	nodes []*node // those of meet

	mu    sync.Mutex
	inUse []string // the topology's regions
}

// node is one process.
type node struct {
	*meshsync.Mesh
	w        *world
	self     quota.Process
	members  *members.Table
	bus      *meshtest.Bus
	counters *counters
	metrics  *meters.Reader
	skewUS   int64
	jump     atomic.Int64 // by which the monotonic clock is ahead, after a stand-still
	log      capture.Log
	cancel   context.CancelFunc
	done     chan error
	tracer   trace.Tracer // nil: nothing is traced
	checks   func() []trace.SpanContext
	inbox    *inbox // nil: nothing is handed on
	resets   map[string][]wire.Cut
	via      func(meshsync.Bus) meshsync.Bus // what stands between it and its bus; nil: nothing

	mu        sync.Mutex
	view      meshsync.Advertised
	exchanges []meshsync.Exchange
}

func newWorld(t *testing.T, regions ...string) *world {
	return &world{t: t, net: meshtest.NewNetwork(1), began: time.Now(), regions: regions, inUse: regions}
}

func (w *world) now() time.Duration { return time.Hour + time.Since(w.began) }

// bubble runs f in a world of the given regions, and stops what f started.
func bubble(t *testing.T, f func(w *world), regions ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, regions...)) })
}

const oneWay = 80 * time.Millisecond

// meet runs f with a process in each of three regions, oneWay apart, whose clocks differ,
// after their first two seconds.
func meet(t *testing.T, f func(w *world, eu, us, ap *node)) {
	t.Helper()
	bubble(t, func(w *world) {
		w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
		w.nodes = []*node{w.join("eu", "a", 1, 0), w.join("us", "a", 2, 3*time.Second), w.join("ap", "a", 3, -time.Minute)}
		sleep(2 * time.Second)
		f(w, w.nodes[0], w.nodes[1], w.nodes[2])
	}, "eu", "us", "ap")
}

// join adds a process whose store clock is ahead of the world's by skew, and has
// it run until stop, or the end of the test.
func (w *world) join(region, instance string, boot int64, skew time.Duration) *node {
	n := w.newNode(region, instance, boot, skew)
	n.counters = newCounters(n)
	n.start(n.counters)
	return n
}

func (w *world) newNode(region, instance string, boot int64, skew time.Duration) *node {
	return &node{
		w: w, self: quota.Process{Region: region, Instance: instance, Boot: boot},
		bus: w.net.Join(region), metrics: meters.New(),
		skewUS: skew.Microseconds(), done: make(chan error, 1),
		view: meshsync.Advertised{Members: []string{region}, Topology: 7},
	}
}

// key differs from region to region, so that fingerprints do.
func (n *node) key() wire.Key {
	if n.inbox != nil {
		return wire.NewKey(nil, "one for all") // or nobody knows what a want is of
	}
	return wire.NewKey(nil, n.self.Region)
}

// secret is the one of all processes.
func secret(t *testing.T) *wire.Secret {
	t.Helper()
	return secretOf(t, "test", "the shared key")
}

// secretOf derives one from keys, the one to use first.
func secretOf(t *testing.T, cluster string, keys ...string) *wire.Secret {
	t.Helper()
	var shared [][]byte
	for _, k := range keys {
		shared = append(shared, []byte(k))
	}
	s, err := wire.NewSecret(shared, cluster)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inject delivers a message that some process signed.
func (n *node) inject(subject string, data []byte) {
	n.bus.Inject(subject, secret(n.w.t).Sign(subject, data))
}

func (n *node) start(c meshsync.Counters) {
	t := n.w.t
	t.Helper()
	var bus meshsync.Bus = n.bus
	if n.via != nil {
		bus = n.via(bus)
	}
	n.members = members.New(n.self)
	m, err := meshsync.New(meshsync.Options{
		Members: n.members, Key: n.key(), Secret: secret(t), Bus: bus, Counters: c, Now: n.now, TimeUS: n.timeUS,
		Regions: n.w.topology, View: n.advertised, OnExchange: n.exchanged,
		Logger: slog.New(slog.NewJSONHandler(&n.log, nil)), Tracer: n.tracer, Meter: n.metrics.Meter,
	})
	if err != nil {
		t.Fatal(err)
	}
	if n.inbox != nil {
		m.SetReceivers(n.inbox.receivers())
	}
	n.Mesh = m
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(t.Context())
	go func() {
		n.done <- m.Run(ctx)
		close(n.done)
	}()
	t.Cleanup(n.stop)
}

// stop ends the process as SIGTERM does. It may be called twice.
func (n *node) stop() {
	n.cancel()
	if err := <-n.done; err != nil {
		n.w.t.Error(err)
	}
}

// kill ends it as SIGKILL does.
func (n *node) kill() {
	n.bus.Leave()
	n.stop()
}

func (w *world) topology() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inUse
}

// reload puts another topology in force everywhere.
func (w *world) reload(regions ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inUse = regions
}

// now is the process's monotonic clock.
func (n *node) now() time.Duration { return n.w.now() + time.Duration(n.jump.Load()) }

func (n *node) timeUS() int64 { return startUS + n.now().Microseconds() + n.skewUS }

func (n *node) advertised() meshsync.Advertised {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view
}

// advertise has the next heartbeat carry a.
func (n *node) advertise(a meshsync.Advertised) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.view = a
}

func (n *node) exchanged(_ quota.Process, e meshsync.Exchange) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.exchanges = append(n.exchanges, e)
}

// cell names a counter of the process's region in the present bucket.
func (n *node) cell(id uint64) meshtest.Cell {
	const minute = int64(60_000_000)
	bucket := n.timeUS() / minute
	return meshtest.Cell{
		Region: n.self.Region, Limit: "standard.sustained", WindowUS: minute,
		Bucket: bucket, ID: id, Generation: bucket * minute,
	}
}

// Peers is every other process that n has received, without what is the mesh's own.
func (n *node) Peers() []members.Member {
	peers := slices.DeleteFunc(n.members.Others(), func(p members.Member) bool { return p.ReceivedAt == 0 })
	for i := range peers {
		peers[i].Own = nil
	}
	return peers
}

// Left reports whether a process announced to n that it stops.
func (n *node) Left(p quota.Process) bool {
	return slices.ContainsFunc(n.members.Others(), func(m members.Member) bool { return m.Process == p && m.LeftUntil != 0 })
}

// peer is what n knows of another process.
func (n *node) peer(of *node) (members.Member, bool) {
	for _, p := range n.Peers() {
		if p.Process == of.self {
			return p, true
		}
	}
	return members.Member{}, false
}

// knows fails the test unless n knows the other, and returns what.
func (n *node) knows(of *node) members.Member {
	n.w.t.Helper()
	p, ok := n.peer(of)
	if !ok {
		n.w.t.Fatalf("%s/%s does not know %s/%s", n.self.Region, n.self.Instance, of.self.Region, of.self.Instance)
	}
	return p
}

// counter is the sum of a counter's series that have the given labels.
func (n *node) counter(name string, labels ...string) int64 {
	n.w.t.Helper()
	return int64(n.metrics.Of(n.w.t, name, labels...))
}

// admit has n admit units under each of the ids from 0 on.
func (n *node) admit(ids int, units int64) {
	for i := range ids {
		n.counters.Admit(units, n.cell(uint64(i)))
	}
}

// group is a counter on the wire.
func group(c meshtest.Cell, units int64) []wire.Group {
	return []wire.Group{{
		Limit: c.Limit, WindowUS: c.WindowUS, Bucket: c.Bucket,
		IDs: []uint64{c.ID}, Generations: []int64{c.Generation}, Units: []int64{units},
	}}
}

// spy returns a function that ends the recording of what n publishes, and returns what was
// published since now under a subject that begins with prefix.
func (n *node) spy() func(prefix string) []meshsync.Message {
	var sent []meshsync.Message
	n.bus.Spy(func(m meshsync.Message) { sent = append(sent, m) })
	return func(prefix string) []meshsync.Message {
		n.bus.Spy(nil)
		return slices.DeleteFunc(sent, func(m meshsync.Message) bool { return !strings.HasPrefix(m.Subject, prefix) })
	}
}

// sleep lets the world's time pass, and everything that is due in it happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
