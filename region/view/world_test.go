package view_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
)

// A world is a few processes, each with a Viewer, and between them a small model of
// the mesh: heartbeats with acknowledgements every 500 ms and at once when their
// content changes, snapshots on request, and links per direction that can be cut.
// Time moves in ticks.

const (
	tick      = 10 * time.Millisecond
	epoch     = time.Hour       // times of 0 mean never, so no world begins at 0
	deathTime = 5 * time.Second // until gossip reports a killed process dead
)

type node struct {
	quota.Process
	members.Bus // what its heartbeats contain
	weights     []quota.Weight
	began       time.Duration
	phase       time.Duration
	up, left    bool
	gone        time.Duration // when it was killed or left
	paused      time.Duration // until when
	viewer      *view.Viewer
	view        *view.View
	sent        map[uint64]time.Duration // heartbeats, by Seq
	peers       map[*node]*members.Member
	asked       map[*node]time.Duration
	past        history
	inbox       []message
	dirty       bool

	mode       string
	changed    []time.Duration // when the mode changed
	advertised []advertised    // what it advertised, from when on
	events     []event
}

type advertised struct {
	at      time.Duration
	members string
}

type event struct {
	at time.Duration
	view.Event
}

type message struct {
	kind        string // "heartbeat", "request", "snapshot"
	from, to    *node
	at          time.Duration
	members.Bus // of a heartbeat, like acks
	acks        map[*node]uint64
}

type world struct {
	now     time.Duration
	weights []quota.Weight
	nodes   []*node
	cut     map[string]bool // "a>b"
	delays  map[string]time.Duration
	delay   time.Duration
	lose    map[string]int // heartbeats still to be lost on "a>b"
	gossip  map[string]members.Word
	flight  []message
	// fromAnywhere: messages are received from regions that are not in the topology too.
	fromAnywhere bool
}

func newWorld(weights []quota.Weight) *world {
	return &world{
		now: epoch, weights: weights, cut: map[string]bool{}, delays: map[string]time.Duration{},
		delay: 40 * time.Millisecond, lose: map[string]int{}, gossip: map[string]members.Word{},
	}
}

func (n *node) name() string {
	if n.Instance == "1" {
		return n.Region
	}
	return n.Region + "/" + n.Instance
}

// find returns the newest run of the named process.
func (w *world) find(name string) *node {
	for _, n := range slices.Backward(w.nodes) {
		if n.name() == name {
			return n
		}
	}
	return nil
}

// start begins a run of a process, with the world's topology. Processes do not tick in
// step.
func (w *world) start(name string) *node {
	region, instance, _ := strings.Cut(name+"/1", "/")
	instance, _, _ = strings.Cut(instance, "/")
	n := &node{
		weights: w.weights, began: w.now, up: true, phase: time.Duration(len(w.nodes)*7%50) * tick,
		sent: map[uint64]time.Duration{}, peers: map[*node]*members.Member{}, asked: map[*node]time.Duration{}, past: history{},
	}
	n.Process = quota.Process{Region: region, Instance: instance, Boot: int64(w.now) + int64(len(w.nodes))}
	n.viewer = view.NewViewer(region, w.now, topologyOf(w.weights))
	w.nodes = append(w.nodes, n)
	w.observe(n)
	return n
}

// reload gives a process another topology.
func (n *node) reload(weights []quota.Weight) {
	n.weights = weights
	n.viewer.Configure(topologyOf(weights))
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
		if !n.up || w.now < n.paused {
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
			w.heartbeat(n)
		}
		w.request(n)
	}
}

// observe is what a Manager does: observe, reset on a pause, and send a heartbeat when
// its content changes.
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
	n.view, events = n.past.observe(n.viewer, in)
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
	if before == nil || !slices.Equal(before.Heartbeat.Members, n.view.Heartbeat.Members) {
		n.advertised = append(n.advertised, advertised{w.now, strings.Join(n.view.Heartbeat.Members, ",")})
		w.heartbeat(n)
	}
}

// unknown is a process of which nothing is known but its name.
func unknown(n *node) *members.Member {
	return &members.Member{Process: n.Process}
}

// process is what n knows of other, by the bus and by gossip; nil for nothing.
func (w *world) process(n, other *node) *members.Member {
	p := n.peers[other]
	if other == n || p == nil && !other.up {
		return nil
	}
	if p == nil {
		p = unknown(other)
	}
	p.Gossip.State = members.Alive
	switch g, set := w.gossip[other.name()]; {
	case set:
		p.Gossip.State = g
	case other.left:
		p.Gossip.State, p.LeftUntil = members.Dead, 1
	case !other.up && w.now-other.gone >= deathTime:
		p.Gossip.State = members.Dead
	}
	return p
}

func (w *world) send(m message) {
	link := m.from.Region + ">" + m.to.Region
	if m.from == m.to || w.cut[link] {
		return
	}
	if m.kind == "heartbeat" && w.lose[link] > 0 {
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

func (w *world) heartbeat(n *node) {
	n.Seq++
	n.sent[n.Seq] = w.now
	n.Members = n.view.Heartbeat.Members
	n.Topology, n.Weights = n.view.Heartbeat.Topology, n.view.Heartbeat.Weights
	acks := make(map[*node]uint64, len(n.peers))
	for other, p := range n.peers {
		acks[other] = p.Seq
	}
	for _, other := range w.nodes {
		w.send(message{kind: "heartbeat", from: n, to: other, Bus: n.Bus, acks: acks})
	}
}

// request requests missing snapshots, at most once a second of each process.
func (w *world) request(n *node) {
	for _, other := range w.nodes {
		p := n.peers[other]
		if p == nil || p.Synced || w.now-p.ReceivedAt > members.SilentAfter || n.asked[other] != 0 && w.now-n.asked[other] < time.Second {
			continue
		}
		n.asked[other] = w.now
		w.send(message{kind: "request", from: n, to: other})
	}
}

// deliver puts what has arrived into inboxes, where a paused process finds it later.
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
	if !w.fromAnywhere && !slices.ContainsFunc(n.weights, func(o quota.Weight) bool { return o.Region == m.from.Region }) {
		return
	}
	p := n.peers[m.from]
	if p == nil {
		p = unknown(m.from)
		n.peers[m.from] = p
	}
	if w.now-p.ReceivedAt > members.SilentAfter {
		p.Heartbeats, p.Synced, n.asked[m.from] = 0, false, 0
	}
	p.ReceivedAt, n.dirty = w.now, true
	switch m.kind {
	case "request":
		w.send(message{kind: "snapshot", from: n, to: m.from})
	case "snapshot":
		p.Synced = true
	case "heartbeat":
		if m.Seq <= p.Seq {
			return
		}
		next := m.Bus
		next.ReceivedAt, next.AckedAt, next.Heartbeats, next.Synced = w.now, p.AckedAt, p.Heartbeats+1, p.Synced
		p.Bus, p.View.OtherKey = next, m.Key != n.Key
		if seq, ok := m.acks[n]; ok {
			p.AckedAt = max(p.AckedAt, n.sent[seq])
		}
	}
}

// stop ends a process, with an announcement or without.
func (w *world) stop(n *node, leaving bool) {
	n.up, n.left, n.gone = false, leaving, w.now
	if !leaving {
		return
	}
	for _, other := range w.nodes {
		if p := other.peers[n]; p != nil {
			p.LeftUntil, other.dirty = 1, true
		}
	}
}

// sees is a node's view in a line: "partitioned peer_silent(b,c) M=a".
func (n *node) sees() string {
	mode, reason := n.view.Mode(quota.FailShare)
	text := mode.String()
	if reason != quota.ReasonNone {
		text += fmt.Sprintf(" %v(%s)", reason, strings.Join(n.view.About, ","))
	}
	return text + " M=" + strings.Join(membersOf(n.view), ",")
}

// membersOf names M in use, in topology order.
func membersOf(v *view.View) []string {
	var names []string
	for i, name := range v.Regions {
		if v.Members.Has(i) {
			names = append(names, name)
		}
	}
	return names
}
