package view_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
)

// A world is a few processes, each with a Viewer, and between them a small model of
// the mesh: beats with acks every 500 ms and at once when what they say changes,
// digests on request, and per-direction links that can be cut. Time moves in ticks.

const (
	tick      = 10 * time.Millisecond
	epoch     = time.Hour       // times of 0 mean never, so no world begins at 0
	deathTime = 5 * time.Second // until gossip calls a killed process dead
)

type node struct {
	region, instance string
	boot             int64
	began            time.Duration
	phase            time.Duration
	up, left         bool
	gone             time.Duration // when it was killed or left
	frozen           time.Duration // until when
	viewer           *view.Viewer
	view             *view.View
	weights          []quota.Weight
	seq              int
	sent             map[int]time.Duration
	peers            map[*node]*view.Process
	seqs             map[*node]int
	asked            map[*node]time.Duration
	inbox            []message
	dirty            bool
	full             bool
	key              string // of its partitions
	unsent           time.Duration

	mode    string
	changed []time.Duration // when the mode changed
	spoke   []time.Duration // when what it advertises changed
	events  []event
}

type event struct {
	at time.Duration
	view.Event
}

type message struct {
	kind     string // "beat", "request", "digest"
	from, to *node
	at       time.Duration
	seq      int
	acks     map[*node]int
	members  []string
	topology uint64
	weights  []quota.Weight
	unsent   time.Duration
	full     bool
	key      string
}

type world struct {
	now     time.Duration
	weights []quota.Weight
	nodes   []*node
	cut     map[string]bool // "a>b"
	delays  map[string]time.Duration
	delay   time.Duration
	lose    map[string]int // beats still to be lost on "a>b"
	gossip  map[string]gossip.State
	flight  []message
}

func newWorld(weights []quota.Weight) *world {
	return &world{
		now: epoch, weights: weights, cut: map[string]bool{}, delays: map[string]time.Duration{},
		delay: 40 * time.Millisecond, lose: map[string]int{}, gossip: map[string]gossip.State{},
	}
}

func (n *node) name() string {
	if n.instance == "1" {
		return n.region
	}
	return n.region + "/" + n.instance
}

// find returns the newest life of the named process.
func (w *world) find(name string) *node {
	for _, n := range slices.Backward(w.nodes) {
		if n.name() == name {
			return n
		}
	}
	return nil
}

// start begins a life of a process. Processes do not tick in step.
func (w *world) start(name string, weights []quota.Weight) (*node, error) {
	n := &node{
		region: name, instance: "1", boot: int64(w.now) + int64(len(w.nodes)), began: w.now, up: true, weights: weights,
		phase: time.Duration(len(w.nodes)*7%50) * tick,
		sent:  map[int]time.Duration{}, peers: map[*node]*view.Process{}, seqs: map[*node]int{}, asked: map[*node]time.Duration{},
	}
	if i := strings.IndexByte(name, '/'); i > 0 {
		n.region, n.instance = name[:i], name[i+1:]
	}
	var err error
	n.viewer, err = view.NewViewer(n.region, w.now, topologyOf(weights))
	w.nodes = append(w.nodes, n)
	w.observe(n)
	return n, err
}

func topologyOf(weights []quota.Weight) view.Topology {
	return view.Topology{Weights: weights, Units: []int64{100}}
}

// run moves the world on until the given time since its beginning.
func (w *world) run(until time.Duration) {
	for w.now < epoch+until {
		w.step()
	}
}

func (w *world) step() {
	w.now += tick
	w.deliver()
	for _, n := range w.nodes {
		if !n.up || w.now < n.frozen {
			continue
		}
		for _, m := range n.inbox {
			w.receive(n, m)
		}
		n.inbox = nil
		if n.dirty || w.now%(50*time.Millisecond) == n.phase%(50*time.Millisecond) {
			w.observe(n)
		}
		if w.now%meshsync.HeartbeatEvery == n.phase {
			w.beat(n)
		}
		w.request(n)
	}
}

// observe is what the hall does: look, obey events, and beat when there is news.
func (w *world) observe(n *node) {
	n.dirty = false
	in := view.Input{Now: w.now}
	for _, other := range w.nodes {
		if p := w.process(n, other); p != nil {
			in.Processes = append(in.Processes, *p)
		}
	}
	before := n.view
	var events []view.Event
	n.view, events = n.viewer.Observe(in)
	for _, e := range events {
		n.events = append(n.events, event{w.now, e})
		if e.Kind == view.ProcessPaused {
			for _, p := range n.peers {
				p.Synced, p.Heartbeats = false, 0
			}
		}
	}
	mode, _ := n.view.Mode(quota.FailShare)
	if n.mode != mode.String() {
		n.mode, n.changed = mode.String(), append(n.changed, w.now)
	}
	if before == nil || !slices.Equal(before.Advertised(), n.view.Advertised()) {
		n.spoke = append(n.spoke, w.now)
		w.beat(n)
	}
}

func newProcess(n *node) *view.Process {
	return &view.Process{Peer: meshsync.Peer{Process: quota.Process{Region: n.region, Instance: n.instance, Boot: n.boot}}}
}

// process is what n knows of other, by the bus and by gossip; nil for nothing.
func (w *world) process(n, other *node) *view.Process {
	p := n.peers[other]
	if other == n || p == nil && !other.up {
		return nil
	}
	if p == nil {
		p = newProcess(other)
	}
	p.Gossip = gossip.Alive
	switch g, set := w.gossip[other.name()]; {
	case set:
		p.Gossip = g
	case other.left:
		p.Gossip, p.Leaving = gossip.Dead, true
	case !other.up && w.now-other.gone >= deathTime:
		p.Gossip = gossip.Dead
	}
	return p
}

func (w *world) link(from, to *node) string { return from.region + ">" + to.region }

func (w *world) send(m message) {
	link := w.link(m.from, m.to)
	if m.from == m.to || w.cut[link] {
		return
	}
	if m.kind == "beat" && w.lose[link] > 0 {
		w.lose[link]--
		return
	}
	delay, set := w.delays[link]
	if !set {
		delay = w.delay
	}
	m.at = w.now + delay
	w.flight = append(w.flight, m)
}

func (w *world) beat(n *node) {
	n.seq++
	n.sent[n.seq] = w.now
	acks := make(map[*node]int, len(n.seqs))
	for other, seq := range n.seqs {
		acks[other] = seq
	}
	hash, weights := n.view.Topology()
	for _, other := range w.nodes {
		w.send(message{
			kind: "beat", from: n, to: other, seq: n.seq, acks: acks, members: n.view.Advertised(),
			topology: hash, weights: weights, unsent: n.unsent, full: n.full, key: n.key,
		})
	}
}

// request asks peers whose totals are not complete, at most once a second each.
func (w *world) request(n *node) {
	for _, other := range w.nodes {
		p := n.peers[other]
		if p == nil || p.Synced || w.now-p.ReceivedAt > meshsync.SilentAfter || n.asked[other] != 0 && w.now-n.asked[other] < time.Second {
			continue
		}
		n.asked[other] = w.now
		w.send(message{kind: "request", from: n, to: other})
	}
}

// deliver puts what has arrived into inboxes; a frozen process finds it there later.
func (w *world) deliver() {
	var later []message
	for _, m := range w.flight {
		switch {
		case m.at > w.now:
			later = append(later, m)
		case m.to.up:
			m.to.inbox = append(m.to.inbox, m)
		}
	}
	w.flight = later
}

func (w *world) receive(n *node, m message) {
	if !slices.ContainsFunc(n.weights, func(o quota.Weight) bool { return o.Region == m.from.region }) {
		return // a stranger
	}
	p := n.peers[m.from]
	if p == nil {
		p = newProcess(m.from)
		n.peers[m.from] = p
	}
	if w.now-p.ReceivedAt > meshsync.SilentAfter {
		p.Heartbeats, p.Synced, n.asked[m.from] = 0, false, 0
	}
	p.ReceivedAt, n.dirty = w.now, true
	switch m.kind {
	case "request":
		w.send(message{kind: "digest", from: n, to: m.from})
	case "digest":
		p.Synced = true
	case "beat":
		if m.seq <= n.seqs[m.from] {
			return
		}
		n.seqs[m.from] = m.seq
		p.Heartbeats++
		p.Members, p.Topology, p.Weights = m.members, m.topology, m.weights
		p.Unsent, p.Full, p.OtherKey = m.unsent, m.full, m.key != n.key
		if seq, ok := m.acks[n]; ok {
			p.AckedAt = max(p.AckedAt, n.sent[seq])
		}
	}
}

// stop ends a process, silently or with a word.
func (w *world) stop(n *node, leaving bool) {
	n.up, n.left, n.gone = false, leaving, w.now
	if !leaving {
		return
	}
	for _, other := range w.nodes {
		if p := other.peers[n]; p != nil {
			p.Leaving, other.dirty = true, true
		}
	}
}

// sees is a node's view in a line: "share peer_silent(b,c) M=a".
func (n *node) sees() string {
	mode, reason := n.view.Mode(quota.FailShare)
	text := mode.String()
	if reason != quota.ReasonNone {
		text += fmt.Sprintf(" %v(%s)", reason, strings.Join(n.view.About(), ","))
	}
	return text + " M=" + strings.Join(n.members(), ",")
}

func (n *node) members() []string {
	var names []string
	for i, name := range n.view.Regions() {
		if n.view.Members().Has(i) {
			names = append(names, name)
		}
	}
	return names
}
