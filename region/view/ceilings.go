package view

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// CeilingOptions are what NewCeilings needs; all but MaxSeries, Offsets, Overshoot,
// Excess, Lost, Check and Meter are required.
type CeilingOptions struct {
	// Self is this process.
	Self quota.Process
	// Now is this process's monotonic clock, and TimeUS that of its region's store, µs
	// since the epoch. Both are safe for concurrent use, and fast.
	Now    func() time.Duration
	TimeUS func() int64
	// Key makes the ids of partitions; all regions have the same.
	Key wire.Key
	// Topology is in force at first; see Configure.
	Topology *region.Topology
	// MaxSeries bounds the partitions that are kept; 0 means ledger.DefaultMaxSeries.
	MaxSeries int
	// Offsets are shown where a decision is explained; nil: not known.
	Offsets *clock.PeerOffsets
	// Overshoot receives what all regions used in each aligned window that is over, and L.
	Overshoot func(limit string, units, limitUnits int64)
	// Excess is given what a region claims to have used beyond what any may admit; it is not
	// counted. nil: nobody looks.
	Excess func(region, limit string, units int64)
	// Lost is called when our region's store is found to have lost usage. It must not wait.
	Lost func()
	// Check returns the span of a request that is sampled, nil for any other; nil without
	// tracing.
	Check func(context.Context) *trace.SpanContext
	// Meter makes the ledger's instruments; nil means there are none.
	Meter metric.Meter
}

// Ceilings gives the limiter the ceiling of each global limit: the view says which
// regions count on each other, the ledger what they have used. Nothing in it waits.
// Safe for concurrent use. It implements limiter.Global.
//
//	limiter ── Ceiling, Grows ──▶ View × ledger.Ledger
//	        ── Record, Local  ──▶ ledger.Ledger ──▶ mesh
type Ceilings struct {
	o        CeilingOptions
	ledger   *ledger.Ledger
	snapshot atomic.Pointer[snapshot]
	limits   atomic.Pointer[limitIndex]
}

// NewCeilings returns Ceilings that know no other process yet: until SetView, each
// limit is held to our region's own share.
func NewCeilings(o CeilingOptions) (*Ceilings, error) {
	if o.Now == nil || o.TimeUS == nil || o.Topology == nil {
		return nil, errors.New("view: Now, TimeUS and Topology are required")
	}
	if o.Excess == nil {
		o.Excess = func(string, string, int64) {}
	}
	c := &Ceilings{o: o}
	c.Configure(o.Topology)
	var err error
	c.ledger, err = ledger.New(ledger.Options{
		Self: o.Self.Region, Boot: o.Self.Boot, Now: o.Now, MaxSeries: o.MaxSeries,
		Limit:     func(name string) (int64, bool) { return c.limits.Load().units(name) },
		Regions:   func() int { return len(c.limits.Load().topology.Weights) },
		Overshoot: o.Overshoot,
		Most:      func(name string) int64 { return c.limits.Load().most(name) },
		Excess:    o.Excess,
		Lost:      o.Lost,
		Meter:     o.Meter,
	})
	if err != nil {
		return nil, err
	}
	viewer, err := NewViewer(o.Self.Region, o.Now(), c.limits.Load().topology)
	if err != nil {
		return nil, err
	}
	v, _ := viewer.Observe(Input{Now: o.Now()})
	c.SetView(v)
	return c, nil
}

// Ledger holds what every region has used.
func (c *Ceilings) Ledger() *ledger.Ledger { return c.ledger }

// Configure puts a topology in force; a Manager applies it to the view when it
// refreshes next.
func (c *Ceilings) Configure(top *region.Topology) { c.limits.Store(newLimitIndex(top)) }

// SetView puts a view in force.
func (c *Ceilings) SetView(v *View) {
	s := &snapshot{View: v}
	for _, name := range v.Regions() {
		s.order = append(s.order, c.ledger.Region(name))
	}
	for i, name := range c.ledger.Names() {
		if !slices.Contains(s.order, i) {
			s.order, s.former = append(s.order, i), append(s.former, name)
		}
	}
	c.snapshot.Store(s)
}

// View is the view in force.
func (c *Ceilings) View() *View { return c.snapshot.Load().At(c.o.Now()) }

// Advertised is what the next heartbeat contains.
func (c *Ceilings) Advertised() meshsync.Advertised {
	v := c.snapshot.Load()
	hash, weights := v.Topology()
	return meshsync.Advertised{Members: v.Advertised(), Topology: hash, Weights: weights}
}

// snapshot is a view, and where its regions are in the ledger.
type snapshot struct {
	*View
	// order[i] is the ledger's index of the view's i-th region. All other regions of the
	// ledger follow: former ones, which the view does not have.
	order  []int
	former []string // their names
}

// stackRegions is the number of regions up to which a decision allocates nothing.
const stackRegions = 16

// estimates is room for the estimated usage of each region. It stays on the caller's
// stack, so it does not keep what it returns.
type estimates struct {
	raw, ordered [stackRegions]int64
}

// at returns the estimated units of all regions in the limit's window at a time, in the
// view's order, what our own store has lost, and the counter that it has to hold for that to
// be so. They are valid until the next call.
func (e *estimates) at(c *Ceilings, s *snapshot, id uint64, l *quota.Limit, at time.Duration) (all []int64, lost int64, known quota.Counter) {
	raw, all := e.raw[:], e.ordered[:0]
	if len(s.order) > stackRegions {
		raw, all = make([]int64, len(s.order)), make([]int64, 0, len(s.order))
	}
	lost, known = c.ledger.Estimates(id, l.WindowUS(), l.BucketUS(), mostOf(l), at, raw[:len(s.order)])
	for _, i := range s.order {
		units := int64(0)
		if i >= 0 {
			units = raw[i]
		}
		all = append(all, units)
	}
	return all, lost, known
}

// Ceiling implements limiter.Global.
func (c *Ceilings) Ceiling(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, explain bool) quota.Ceiling {
	now := c.o.Now()
	s := c.snapshot.Load()
	v := s.At(now)
	var e estimates
	all, lost, known := e.at(c, s, c.o.Key.CounterID(key), l, now)
	answer := quota.Ceiling{Known: known}
	answer.Units, answer.Closed = v.Ceiling(l.Units, p.OnPartition, all, lost)
	answer.Local = answer.Units
	if lost > 0 {
		answer.Local, _ = v.Ceiling(l.Units, p.OnPartition, all, 0)
	}
	answer.Used = all[v.self]
	answer.Mode, answer.Reason = v.Mode(p.OnPartition)
	if explain {
		answer.Terms = c.withOffsets(v.Explain(l.Units, p.OnPartition, all, lost, s.former...))
	}
	return answer
}

func (c *Ceilings) withOffsets(terms *quota.CeilingTerms) *quota.CeilingTerms {
	if c.o.Offsets == nil {
		return terms
	}
	for _, o := range c.o.Offsets.Peers() {
		for i := range terms.Peers {
			if terms.Peers[i].Region == o.Peer {
				terms.Peers[i].OffsetMS = milliseconds(o.Offset)
			}
		}
	}
	return terms
}

// Grows implements limiter.Global. Estimates only decrease while no region admits
// anything, so a binary search finds the millisecond.
func (c *Ceilings) Grows(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64) time.Duration {
	now := c.o.Now()
	s := c.snapshot.Load()
	v, id := s.At(now), c.o.Key.CounterID(key)
	var e estimates
	window := int(l.Window.Milliseconds())
	after := sort.Search(window, func(ms int) bool {
		all, lost, _ := e.at(c, s, id, l, now+time.Duration(ms)*time.Millisecond)
		ceiling, _ := v.Ceiling(l.Units, p.OnPartition, all, lost)
		return ceiling >= units
	})
	return min(l.Window, time.Duration(after)*time.Millisecond)
}

// Record implements limiter.Global.
func (c *Ceilings) Record(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, t quota.Counter, storeUS int64) {
	s := c.series(ctx, p, l, key)
	c.ledger.Record(&s, t, storeUS)
}

// Local implements limiter.Global.
func (c *Ceilings) Local(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64) {
	s := c.series(ctx, p, l, key)
	c.ledger.Local(&s, units, c.o.TimeUS())
}

func (c *Ceilings) series(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey) ledger.Series {
	name, ok := c.limits.Load().names[l]
	if !ok { // of a configuration that is being replaced
		name = limitName(p.Name, l.Name)
	}
	s := ledger.Series{ID: c.o.Key.CounterID(key), Limit: name, Units: l.Units, WindowUS: l.WindowUS(), BucketUS: l.BucketUS()}
	if c.o.Check != nil {
		s.Check = c.o.Check(ctx)
	}
	return s
}

// limitIndex is what the ledger and the view need of a topology. Immutable.
type limitIndex struct {
	topology Topology
	names    map[*quota.Limit]string // of global limits, "<policy>.<limit>"
	limits   map[string]*quota.Limit // by that name
}

func newLimitIndex(top *region.Topology) *limitIndex {
	x := &limitIndex{names: map[*quota.Limit]string{}, limits: map[string]*quota.Limit{}}
	for i := range top.Regions {
		x.topology.Weights = append(x.topology.Weights, quota.Weight{Region: top.Regions[i].Name, Weight: top.Regions[i].Weight})
	}
	for i := range top.Policies {
		p := &top.Policies[i]
		for j := range p.Limits {
			l := &p.Limits[j]
			if l.Scope != quota.ScopeGlobal {
				continue
			}
			name := limitName(p.Name, l.Name)
			x.names[l], x.limits[name] = name, l
			x.topology.Units = append(x.topology.Units, l.Units)
		}
	}
	return x
}

// mostOf is how many units one region may admit under a limit in a window.
func mostOf(l *quota.Limit) int64 {
	bound, _ := l.Bound()
	return max(l.Units, bound)
}

// most is how many units one region may admit under a limit in a bucket: a window that is
// kept as two counters or as a rate can hold as many again.
func (x *limitIndex) most(name string) int64 {
	l, ok := x.limits[name]
	switch {
	case !ok:
		return 0
	case l.Algorithm != quota.SlidingLog:
		return 2 * l.Units
	}
	return mostOf(l)
}

func limitName(policy, limit string) string { return policy + "." + limit }

// units is L of a limit in force.
func (x *limitIndex) units(name string) (units int64, ok bool) {
	l, ok := x.limits[name]
	if !ok {
		return 0, false
	}
	return l.Units, true
}

// series is what the ledger counts a store's counter under; false for one of a limit
// that is not in force. Its buckets may have another length, from the configuration
// before or a sibling that has not reloaded. Their window is not known: they count for
// the one in force, or for their own length if that is longer.
func (x *limitIndex) series(key wire.Key, c *quota.CounterKey) (ledger.Series, bool) {
	name := limitName(c.Policy, c.Limit)
	l, known := x.limits[name]
	if !known || c.BucketUS > quota.MaxWindow.Microseconds() {
		return ledger.Series{}, false
	}
	window := min(max(l.WindowUS(), c.BucketUS), (quota.MaxGlobalBuckets-1)*c.BucketUS)
	return ledger.Series{ID: key.CounterID(c), Limit: name, Units: l.Units, WindowUS: window, BucketUS: c.BucketUS}, true
}
