package view

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/state"
	meshsync "github.com/regiond/regiond/sync"
)

// RefreshEvery is how often the view is refreshed when nothing changes.
const RefreshEvery = 50 * time.Millisecond

// Mesh is what a Manager needs of *sync.Mesh, which documents the methods.
type Mesh interface {
	Peers() []meshsync.Peer
	Changed() <-chan struct{}
	Left(p quota.Process) bool
	Forget(p quota.Process) bool
	HeartbeatSoon()
}

// RegionState is what a Manager needs of *state.State, which documents the methods.
type RegionState interface {
	Snapshot() *state.Snapshot
	See(regions []string)
	Settle(of *state.Snapshot)
}

// ManagerOptions are what NewManager needs; all but State, Members, MembersChanged, Recover,
// Processes and OnEvent are required.
type ManagerOptions struct {
	Ceilings *Ceilings
	Mesh     Mesh
	// State is what our region's store holds of its topology and processes. nil: gossip
	// judges siblings, and no topology outlives this process.
	State RegionState
	// Members returns the processes that gossip knows, and MembersChanged receives when
	// they have changed; nil without gossip.
	Members        func() []gossip.Member
	MembersChanged <-chan struct{}
	// Recover requests that the counters of the region's store are read back; nil where
	// no sibling has the same store.
	Recover func()
	// Processes is how many processes of our region the operator configured; 0 counts
	// as one.
	Processes int64
	// OnEvent is called with each change, one after the other; it may be nil.
	OnEvent func(Event)
	Logger  *slog.Logger
}

// Manager turns what the mesh and gossip know of processes into the view in force, and
// logs what changed. Configure and Processes may be called from anywhere; Refresh only
// by Run, or instead of it.
type Manager struct {
	o         ManagerOptions
	self      quota.Process
	now       func() time.Duration
	requests  chan struct{} // capacity 1
	processes recentMax

	viewer   *Viewer     // Run's own, like all below
	inForce  *limitIndex // that the viewer has
	last     *View
	bounds   string // the state.Topology whose bounds the viewer has
	reported bool   // an event was
}

// NewManager returns a Manager that has refreshed the view once, with no process known.
func NewManager(o ManagerOptions) (*Manager, error) {
	if o.Ceilings == nil || o.Mesh == nil || o.Logger == nil {
		return nil, errors.New("view: Ceilings, Mesh and Logger are required")
	}
	c := o.Ceilings
	m := &Manager{o: o, self: c.o.Self, now: c.o.Now, requests: make(chan struct{}, 1), inForce: c.limits.Load()}
	var err error
	if m.viewer, err = NewViewer(m.self.Region, m.now(), m.inForce.topology); err != nil {
		return nil, err
	}
	m.setView(m.viewer.Observe(Input{Now: m.now(), Unread: o.State != nil}))
	return m, nil
}

// Configure puts a topology in force.
func (m *Manager) Configure(top *region.Topology) {
	m.o.Ceilings.Configure(top)
	signal.Send(m.requests)
}

// Processes is the number of processes that a limit is divided among while the store
// is unavailable.
func (m *Manager) Processes() int64 { return max(m.o.Processes, m.processes.max()) }

// Run refreshes the view every RefreshEvery, and at once when something changes, until
// ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	ticker := time.NewTicker(RefreshEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-m.o.Mesh.Changed():
		case <-m.o.MembersChanged:
		case <-m.requests:
		}
		m.Refresh()
	}
}

// Refresh evaluates all processes and puts the resulting view in force.
func (m *Manager) Refresh() {
	if limits := m.o.Ceilings.limits.Load(); limits != m.inForce {
		if err := m.viewer.Configure(limits.topology); err != nil {
			m.o.Logger.Error("the regions of the new configuration cannot be used", "error", err)
		}
		m.inForce = limits
	}
	in := Input{Now: m.now()}
	var stored *state.Snapshot
	if m.o.State != nil {
		stored = m.o.State.Snapshot()
		in.Unread = !stored.Read
		if stored.Text != m.bounds {
			m.bounds, in.Bounds = stored.Text, stored.Bounds
		}
	}
	in.Processes = m.known(stored)
	m.dropSilent(in)
	m.processes.add(in.Now, m.count(in))
	m.setView(m.viewer.Observe(in))
	if stored != nil {
		m.o.State.See(m.viewer.Sees())
		// While a restart would have to know what was in force, the store keeps it.
		if stored.Topology.Floor != nil && !m.o.Ceilings.held() && !m.viewer.configs.drift() && slices.Equal(stored.Topology.Weights, m.inForce.topology.Weights) {
			m.o.State.Settle(stored)
		}
	}
}

// known is what the bus, gossip and our region's store know of each other process,
// together.
func (m *Manager) known(stored *state.Snapshot) []Process {
	peers := m.o.Mesh.Peers()
	var members []gossip.Member
	if m.o.Members != nil {
		members = m.o.Members()
	}
	known := make([]Process, 0, len(peers)+len(members))
	for i := range peers {
		p := Process{Peer: peers[i]}
		// A process that does not send the fingerprint of its key has a version that makes
		// ids in another way. It is known with the first heartbeat.
		p.OtherKey = p.Members != nil && p.Key != m.o.Ceilings.o.Key.Fingerprint()
		at := slices.IndexFunc(members, func(g gossip.Member) bool { return g.Process == p.Process })
		if at >= 0 {
			p.Gossip = members[at].State
		}
		known = append(known, p)
	}
	for _, g := range members {
		onBus := slices.ContainsFunc(peers, func(p meshsync.Peer) bool {
			return g.Region == p.Region && g.Instance == p.Instance && g.Boot <= p.Boot
		})
		if g.Self || onBus {
			continue
		}
		known = append(known, Process{Peer: meshsync.Peer{Process: g.Process}, Gossip: g.State, Leaving: m.o.Mesh.Left(g.Process)})
	}
	if stored != nil && stored.Read {
		known = m.judged(known, stored.Siblings)
	}
	return known
}

// judged is known with our siblings alive or dead as their entries in the store are: what
// these share is what they must not count twice.
func (m *Manager) judged(known []Process, siblings []state.Sibling) []Process {
	for _, s := range siblings {
		has := func(p Process) bool { return p.Process == s.Process }
		if s.Instance != m.self.Instance && !slices.ContainsFunc(known, has) {
			known = append(known, Process{Peer: meshsync.Peer{Process: s.Process}, Leaving: m.o.Mesh.Left(s.Process)})
		}
	}
	for i := range known {
		p := &known[i]
		if p.Region != m.self.Region {
			continue
		}
		p.Gossip = gossip.Dead
		at := slices.IndexFunc(siblings, func(s state.Sibling) bool { return s.Process == p.Process })
		if at >= 0 {
			p.Gossip, p.Sees, p.SeesAt = gossip.Alive, siblings[at].Sees, siblings[at].At
		}
	}
	return known
}

// dropSilent has the mesh forget the processes that are silent and that gossip has
// lost too. What a silent sibling admits is read from the store that it shares with us.
func (m *Manager) dropSilent(in Input) {
	for i := range in.Processes {
		p := &in.Processes[i]
		switch {
		case !p.silent(in.Now):
		case p.Gossip == gossip.Dead:
			m.o.Mesh.Forget(p.Process)
		case p.Gossip == gossip.Alive && p.Region == m.self.Region && m.o.Recover != nil:
			m.o.Recover()
		}
	}
}

// count is how many processes of our region there are now, ours included. Two runs of
// an instance are one: gossip may know the second before the bus has missed the first.
func (m *Manager) count(in Input) int64 {
	instances := map[string]bool{m.self.Instance: true}
	for i := range in.Processes {
		p := &in.Processes[i]
		alive := p.Gossip == gossip.Alive || !p.silent(in.Now)
		if p.Region == m.self.Region && alive && !p.Leaving {
			instances[p.Instance] = true
		}
	}
	return int64(len(instances))
}

// setView puts a view in force and reports what changed.
func (m *Manager) setView(v *View, events []Event) {
	before := m.last
	m.last = v
	m.o.Ceilings.SetView(v)
	for _, e := range events {
		m.report(e)
	}
	if before != nil && !slices.Equal(before.Advertised(), v.Advertised()) {
		m.o.Mesh.HeartbeatSoon()
	}
}

func (m *Manager) report(e Event) {
	if m.o.OnEvent != nil {
		m.o.OnEvent(e)
	}
	level := slog.LevelInfo
	if e.Kind == ProcessPaused || e.Kind == ModeChanged && e.Reason != quota.ReasonNone && m.reported {
		level = slog.LevelWarn
	}
	m.reported = true
	m.o.Logger.Log(context.Background(), level, e.Text, "kind", e.Kind.String(), "region", e.Region, "from", e.From, "to", e.To, "reason", e.Reason.String())
}

// rememberFor is for how long at least a count of processes is remembered, and half of the
// longest time: a process that restarts, or is cut off for a while, still decides by itself.
const rememberFor = 10 * time.Minute

// recentMax is the largest count of two periods of rememberFor: this one and the one before.
// Safe for concurrent use.
type recentMax struct {
	mu           sync.Mutex
	began        time.Duration // of this period
	before, most int64
}

func (r *recentMax) add(now time.Duration, count int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now-r.began > rememberFor {
		r.began, r.before, r.most = now, r.most, 0
	}
	r.most = max(r.most, count)
}

// max is 1 before the first add: this process.
func (r *recentMax) max() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(1, r.before, r.most)
}
