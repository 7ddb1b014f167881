package view

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/sync/ledger"
)

// RefreshEvery is how often the view is refreshed when nothing changes.
const RefreshEvery = 50 * time.Millisecond

// RegionState is what a Manager needs of *state.State, which documents the methods.
type RegionState interface {
	Snapshot() *state.Snapshot
	See(regions []string)
	Settle(of *state.Snapshot)
	Agree(of *state.Snapshot)
}

// ManagerOptions are what NewManager needs; State, Recover, Processes and OnEvent are optional.
type ManagerOptions struct {
	Ceilings *Ceilings
	// Members is the table of processes, of which the Manager writes View.
	Members *members.Table
	// HeartbeatSoon is called when what the next heartbeat contains has changed.
	HeartbeatSoon func()
	// State is what our region's store holds of its topology. nil: no topology outlives this
	// process.
	State RegionState
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

// Manager turns what is known of processes into the view in force, and
// logs what changed. Configure and Processes may be called from anywhere; Refresh only
// by Run, or instead of it.
type Manager struct {
	o         ManagerOptions
	self      quota.Process
	now       func() time.Duration
	requests  chan struct{} // capacity 1
	processes atomic.Int64  // the result of counts

	viewer  *Viewer     // Run's own, like all below
	counts  recentMax   // of processes of our region
	inForce *limitIndex // that the viewer has
	bounds  string      // the state.Topology whose bounds the viewer has
	// inherits: the bounds are of before this process, and all regions had agreed by then. So they need not agree again, and
	// the wait goes on where it was.
	inherits bool
}

// NewManager returns a Manager that has refreshed the view once, with no process known.
func NewManager(o ManagerOptions) *Manager {
	c := o.Ceilings
	m := &Manager{o: o, self: c.o.Self, now: c.o.Now, requests: make(chan struct{}, 1), inForce: c.limits.Load()}
	m.viewer = NewViewer(m.self.Region, m.now(), m.inForce.topology)
	m.setView(m.viewer.Observe(Input{Now: m.now(), Unread: o.State != nil}))
	return m
}

// Configure puts a topology in force.
func (m *Manager) Configure(top *region.Topology) {
	m.o.Ceilings.Configure(top)
	signal.Send(m.requests)
}

// Processes is the number of processes that a limit is divided among while the store
// is unavailable.
func (m *Manager) Processes() int64 { return max(1, m.o.Processes, m.processes.Load()) }

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
		case <-m.o.Members.Changed():
		case <-m.requests:
		}
		m.Refresh()
	}
}

// Refresh evaluates all processes and puts the resulting view in force.
func (m *Manager) Refresh() {
	if limits := m.o.Ceilings.limits.Load(); limits != m.inForce {
		m.viewer.Configure(limits.topology)
		m.inForce = limits
	}
	in := Input{Now: m.now(), Processes: m.o.Members.Others()}
	for i := range in.Processes {
		// A process that does not send the fingerprint of its key has a version that makes
		// ids in another way. It is known with the first heartbeat.
		p := &in.Processes[i]
		p.View.OtherKey = p.Members != nil && p.Key != m.o.Ceilings.o.Key.Fingerprint()
		if m.o.Recover != nil && p.Region == m.self.Region && p.Silent(in.Now) && p.Reported() == members.Alive {
			m.o.Recover() // what it admits is in the store that it shares with us
		}
	}
	var stored *state.Snapshot
	if m.o.State != nil {
		stored = m.o.State.Snapshot()
		in.Unread = !stored.Read
		if stored.Text != m.bounds {
			m.bounds, in.Bounds = stored.Text, m.unagreed(stored)
		}
		m.o.Ceilings.inherit(m.inherits, stored, in.Now)
	}
	m.processes.Store(m.counts.with(in.Now, m.count(in)))
	m.setView(m.viewer.Observe(in))
	m.o.Members.SetViews(in.Processes)
	if stored != nil {
		m.o.State.See(m.viewer.view.sees)
		// While a restart would have to know what was in force, the store keeps it.
		same := slices.Equal(stored.Topology.Weights, m.inForce.topology.Weights)
		if same && stored.Topology.Floor != nil && !m.viewer.configs.drift() {
			if m.o.Ceilings.Held() == 0 {
				m.o.State.Settle(stored)
			} else if !stored.Agreed {
				m.o.State.Agree(stored)
			}
		}
	}
}

// unagreed is the bounds of a topology that is new to us, as far as all regions have to agree on it yet.
func (m *Manager) unagreed(of *state.Snapshot) region.Floor {
	own := m.o.Ceilings.hold.floor
	switch {
	case of.Bounds == nil || !of.Agreed:
		m.inherits = false
		return of.Bounds
	case m.inherits || own != nil && maps.Equal(own, own.Min(of.Bounds)): // we wait for that already
	case own == nil && !m.viewer.configs.drift():
		m.inherits = true
	default:
		return of.Bounds
	}
	return nil
}

// count is how many processes of our region there are now, ours included. Two runs of
// an instance are one: gossip may know the second before the bus has missed the first.
func (m *Manager) count(in Input) int64 {
	instances := map[string]bool{m.self.Instance: true}
	for i := range in.Processes {
		p := &in.Processes[i]
		alive := p.Reported() == members.Alive || !p.Silent(in.Now)
		if p.Region == m.self.Region && alive && p.LeftUntil == 0 {
			instances[p.Instance] = true
		}
	}
	return int64(len(instances))
}

func (m *Manager) setView(v *View, events []Event) {
	before := m.o.Ceilings.snapshot.Load()
	m.o.Ceilings.setView(v)
	for _, e := range events {
		m.report(e)
	}
	if !slices.Equal(before.Heartbeat.Members, v.Heartbeat.Members) {
		m.o.HeartbeatSoon()
	}
}

func (m *Manager) report(e Event) {
	if m.o.OnEvent != nil {
		m.o.OnEvent(e)
	}
	level := slog.LevelInfo // also of the first mode, which has none before it
	if e.Kind == ProcessPaused || e.Kind == ModeChanged && e.Reason != quota.ReasonNone && e.From != "" {
		level = slog.LevelWarn
	}
	m.o.Logger.Log(context.Background(), level, e.Text,
		"kind", e.Kind.String(), "region", e.Region, "from", e.From, "to", e.To, "reason", e.Reason.String())
}

// rememberFor is for how long at least a count of processes is remembered, and half of the
// longest time: a process that restarts, or is cut off for a while, still decides by itself.
const rememberFor = 10 * time.Minute

// recentMax is the largest count of two periods of rememberFor: this one and the one before.
type recentMax struct {
	began        time.Duration // of this period
	before, most int64
}

// with adds a count, and returns the largest.
func (r *recentMax) with(now time.Duration, count int64) int64 {
	if now-r.began > rememberFor {
		r.began, r.before, r.most = now, r.most, 0
	}
	r.most = max(r.most, count)
	return max(r.before, r.most)
}

const (
	// RecoverEvery is the least time between the beginnings of two recoveries: each
	// walks over the whole store.
	RecoverEvery = 5 * time.Second
	// retryRecoveryAfter is how soon a recovery that failed is tried again.
	retryRecoveryAfter = time.Second
)

// StoreCounters walks over the live usage counters of a region's store: each key, its
// buckets, its gauge, and the store's clock.
type StoreCounters func(
	ctx context.Context, yield func(key quota.CounterKey, buckets []quota.Counter, gauge quota.Gauge, storeUS int64),
) error

// CounterRecovery reads the usage counters of the region's store back into the ledger:
// at the start, for what an earlier run of this process or a sibling has admitted, and
// on Request, because a sibling is silent. What is new goes out to the peers like any
// other change. Request may be called from anywhere.
type CounterRecovery struct {
	counters StoreCounters
	ceilings *Ceilings
	log      *slog.Logger
	requests chan struct{} // capacity 1
}

// NewCounterRecovery returns a CounterRecovery; Run starts it.
func NewCounterRecovery(counters StoreCounters, c *Ceilings, log *slog.Logger) *CounterRecovery {
	return &CounterRecovery{counters: counters, ceilings: c, log: log, requests: make(chan struct{}, 1)}
}

// Request requests another recovery. It never blocks.
func (r *CounterRecovery) Request() { signal.Send(r.requests) }

// Requested consumes a request and reports whether there was one. It is for callers of
// Recover.
func (r *CounterRecovery) Requested() bool { return signal.Taken(r.requests) }

// Run recovers at once and on each request, until ctx ends.
func (r *CounterRecovery) Run(ctx context.Context) error {
	for {
		pause := r.Recover(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.requests:
		}
	}
}

// Recover reads all counters once and returns how long to pause before the next time.
// After a failure it requests another.
func (r *CounterRecovery) Recover(ctx context.Context) (pause time.Duration) {
	limits := r.ceilings.limits.Load()
	err := r.counters(ctx, func(key quota.CounterKey, buckets []quota.Counter, gauge quota.Gauge, storeUS int64) {
		name := limitName(key.Policy, key.Limit)
		l, known := limits.limits[name]
		if !known || key.WindowUS > quota.MaxWindow.Microseconds() { // of a limit that is not in force
			return
		}
		// Its window or calendar may be another, from the configuration before or a sibling that has not reloaded.
		s := ledger.Series{
			ID: r.ceilings.o.Key.CounterID(&key), Tenant: key.Tenant, Limit: name, Units: l.Units,
			WindowUS: key.WindowUS, Periods: key.Calendar != "",
		}
		for _, t := range buckets {
			r.ceilings.ledger.Record(&s, t, gauge, storeUS)
		}
	})
	if err != nil {
		r.log.Debug("usage counters will be read again", "error", err)
		r.Request()
		return retryRecoveryAfter
	}
	return RecoverEvery
}
