package view

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/state"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// CeilingOptions are what NewCeilings needs; Ledger, Offsets, Store, Window, Files and Check are optional.
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
	// Ledger has what the ledger needs beside what Ceilings knows: MaxSeries, Overshoot, Excess,
	// Lost and Meter, all optional.
	Ledger ledger.Options
	// Offsets are shown where a decision is explained; nil: not known.
	Offsets *clock.PeerOffsets
	// Store is what the loans of our region's store go by; nil, and an Epoch of 0, close
	// limits with a bound.
	Store func() loan.Store
	// Window is the longest window of a limit under which loans may matter still, and how long reservations may hold units of
	// it, by policy.limit, µs; nil: its own.
	Window func(limit string) (us, maxTTLUS int64)
	// Files reports, where a decision is explained, which other regions have another configuration, of which it is not
	// known, and for how long all that are known have been alike; nil: all are always alike.
	Files func() (differ, unseen []string, alike time.Duration)
	// Check returns the span of a request that is sampled, nil for any other; nil without
	// tracing.
	Check func(context.Context) *trace.SpanContext
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
	hold     hold // setView's own, like inherited
	// inherited is a hold of before this process.
	inherited hold

	asked    func(id uint64, key *quota.CounterKey, a loan.Ask) // see Bind
	returned func(tenant string)
}

// hold is the smallest shares that any process may have gone by, at any time up to until.
// What was lent and used under other shares may still count for a while after that.
type hold struct {
	floor region.Floor // nil for none
	until time.Duration
	drift bool // they were in force when the view was set last
}

// heldShare is the most units of B that our region may use by itself, at now, under a limit with this keep.
func (c *Ceilings) heldShare(h *hold, units int64, now, keep time.Duration) int64 {
	if h.floor == nil || now-h.until >= keep {
		return units
	}
	return h.floor.Share(c.o.Self.Region, units)
}

// terms are those of a limit, by policy.limit, with the longest window and reservations under which anything may matter still.
func (c *Ceilings) terms(name string, l *quota.Limit) loan.Terms {
	terms := loan.TermsOfLimit(l)
	if c.o.Window != nil {
		window, maxTTL := c.o.Window(name)
		terms = loan.TermsOf(max(terms.Window, window)).Holding(max(terms.MaxTTL, maxTTL))
	}
	return terms
}

// keep is how long what was lent and used under a limit may matter, under other shares or by data that are lost.
func (c *Ceilings) keep(name string, l *quota.Limit) time.Duration {
	return time.Duration(c.terms(name, l).Keep()) * time.Microsecond
}

// keepAny is the longest keep of a limit with a bound; 0: there is none.
func (c *Ceilings) keepAny() (longest time.Duration) {
	x := c.limits.Load()
	for _, name := range x.bounded {
		longest = max(longest, c.keep(name, x.limits[name]))
	}
	return longest
}

// NewCeilings returns Ceilings that know no other process yet: until setView, each
// limit is held to our region's own share.
func NewCeilings(o CeilingOptions) (*Ceilings, error) {
	c := &Ceilings{o: o}
	c.Configure(o.Topology)
	var err error
	lo := o.Ledger
	lo.Self, lo.Boot, lo.Now = o.Self.Region, o.Self.Boot, o.Now
	lo.Limit = func(name string) (int64, bool) {
		if l, ok := c.limits.Load().limits[name]; ok {
			return l.Units, true
		}
		return 0, false
	}
	lo.Regions = func() int { return len(c.limits.Load().topology.Weights) }
	lo.Most = func(name string, units int64) int64 { return c.limits.Load().most(name, units, o.Now()) }
	lo.Returned = func(tenant string) {
		if c.returned != nil {
			c.returned(tenant)
		}
	}
	c.ledger, err = ledger.New(lo)
	if err != nil {
		return nil, err
	}
	v, _ := NewViewer(o.Self.Region, o.Now(), c.limits.Load().topology).Observe(Input{Now: o.Now()})
	c.setView(v)
	return c, nil
}

// Bind sets what is made of Ceilings and called by them, before anything is decided: asked gets what
// decisions show of limits with a bound, and returned is as in ledger.Options. Without it nobody lends.
func (c *Ceilings) Bind(asked func(id uint64, key *quota.CounterKey, a loan.Ask), returned func(tenant string)) {
	c.asked, c.returned = asked, returned
}

// Ledger holds what every region has used.
func (c *Ceilings) Ledger() *ledger.Ledger { return c.ledger }

// Configure puts a topology in force; a Manager applies it to the view when it
// refreshes next.
func (c *Ceilings) Configure(top *region.Topology) {
	x := newLimitIndex(top)
	if before := c.limits.Load(); before != nil {
		x.keepLowered(before, c.o.Now())
	}
	c.limits.Store(x)
}

// inherit has the bounds of a topology hold for the rest of the wait: all regions had agreed on it before this process started.
func (c *Ceilings) inherit(inherits bool, of *state.Snapshot, now time.Duration) {
	c.inherited = hold{}
	if inherits && of.AgreedFor < c.keepAny() {
		c.inherited = hold{floor: of.Bounds, until: now - of.AgreedFor}
	}
}

func (c *Ceilings) setView(v *View) {
	switch {
	case v.allocation.floor != nil:
		c.hold = hold{c.hold.floor.Min(v.allocation.floor), v.at, true}
	case c.hold.drift: // they were until now: this process may have been paused meanwhile
		c.hold.until, c.hold.drift = v.at, false
	case v.at-c.hold.until >= c.keepAny():
		c.hold = hold{}
	}
	s := &snapshot{View: v, hold: c.hold, inherited: c.inherited}
	for _, name := range v.Regions {
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
func (c *Ceilings) Advertised() meshsync.Advertised { return c.snapshot.Load().Heartbeat }

type snapshot struct {
	*View
	// order[i] is the ledger's index of the view's i-th region. All other regions of the
	// ledger follow: former ones, which the view does not have.
	order  []int
	former []string // their names
	hold   hold
	// inherited is that of Ceilings.
	inherited hold
}

// Agreed reports whether no other shares than ours are in force anywhere, as far as is known.
func (c *Ceilings) Agreed() bool { return c.snapshot.Load().allocation.floor == nil }

// Held is for how long bounded limits still keep to smaller shares that were in force, from now on or, while they are in force, from when
// they no longer are.
func (c *Ceilings) Held() time.Duration {
	s, keep := c.snapshot.Load(), c.keepAny()
	if s.hold.drift {
		return keep
	}
	left := time.Duration(0)
	for _, h := range []hold{s.hold, s.inherited} {
		if h.floor != nil {
			left = max(left, keep-(c.o.Now()-h.until))
		}
	}
	return left
}

// Bound is this region's part in the bound of a limit of a policy, which may have the units of an override; false: it has none.
// Regions is how many there are.
func (c *Ceilings) Bound(policy string, l *quota.Limit) (b quota.Bound, regions int, ok bool) {
	b, ok = c.bound(c.snapshot.Load(), policy, l, c.o.Now())
	return b, len(c.limits.Load().topology.Weights), ok
}

func (c *Ceilings) bound(s *snapshot, policy string, l *quota.Limit, now time.Duration) (b quota.Bound, ok bool) {
	units, ok := l.Bound()
	if !ok {
		return b, false
	}
	name := c.limits.Load().nameOf(policy, l)
	keep := c.keep(name, l)
	b.Share = min(s.Share(units), c.heldShare(&s.hold, units, now, keep), c.heldShare(&s.inherited, units, now, keep))
	if c.o.Store == nil {
		return b, true
	}
	of := c.o.Store()
	b.Epoch, b.LostIn, b.SinceUS, b.FastPPM, b.Drifting = of.Epoch, of.LostIn, of.Since, of.FastPPM, of.Drifting
	switch {
	case l.Calendar != nil && of.DataLost > 0:
		last := c.terms(name, l).Burns(l.Calendar, of.DataLost)
		b.BurntThrough, b.BurntUntilUS = last.Number, last.End
	case l.Calendar == nil && of.Lost > 0:
		b.BurntUntilUS = of.Lost + of.Unwatched + keep.Microseconds()
	}
	return b, true
}

// units is the ceiling of a limit. A bound itself is the store's to apply: beside one the
// estimate goes by all regions, received or not, since what it misses the bound has.
func (v *View) units(l *quota.Limit, f quota.FailMode, estimates []int64, lost int64) (units int64, closed bool) {
	t := v.terms(l.Units, f, estimates, lost)
	if l.MaxOvershoot == 0 {
		return Ceiling(t)
	}
	if _, closed = Ceiling(t); closed || l.MaxOvershoot == quota.Strict {
		units, _ = l.Bound()
		if closed {
			units = 0
		}
		return units, closed
	}
	t.Fail, t.Joining = quota.FailShare, false
	for k := range t.Shares {
		t.Members = t.Members.With(k)
	}
	units, _ = Ceiling(t)
	return units, false
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
//
// Those of a limit with a calendar are in the period of a number, 0 for that of now, which it returns.
func (e *estimates) at(
	c *Ceilings, s *snapshot, id uint64, tenant string, l *quota.Limit, at time.Duration, period int64,
) (all []int64, lost int64, known quota.Counter, _ int64) {
	raw, all := e.raw[:], e.ordered[:0]
	if len(s.order) > stackRegions {
		raw, all = make([]int64, len(s.order)), make([]int64, 0, len(s.order))
	}
	c.ledger.Purge(tenant, id)
	most := mostOf(c.limits.Load().largest(l, at))
	if l.Calendar == nil {
		lost, known = c.ledger.Estimates(id, l.WindowUS(), most, at, raw[:len(s.order)])
	} else {
		if period == 0 {
			us := c.o.TimeUS()
			now := l.Calendar.At(us)
			period = c.ledger.Period(id, us, now, l.Calendar.Next(now))
		}
		lost, known = c.ledger.PeriodEstimates(id, period, most, at, raw[:len(s.order)])
	}
	for _, i := range s.order {
		units := int64(0)
		if i >= 0 {
			units = raw[i]
		}
		all = append(all, units)
	}
	return all, lost, known, period
}

// Ceiling implements limiter.Global.
func (c *Ceilings) Ceiling(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, explain bool, period int64) quota.Ceiling {
	now := c.o.Now()
	s := c.snapshot.Load()
	v := s.At(now)
	var e estimates
	all, lost, known, period := e.at(c, s, c.o.Key.CounterID(key), key.Tenant, l, now, period)
	answer := quota.Ceiling{Known: known, Period: period}
	answer.Units, answer.Closed = v.units(l, p.OnPartition, all, lost)
	answer.Local = answer.Units
	answer.Bound, answer.Bounded = c.bound(s, p.Name, l, now)
	answer.Lenders = v.Members.Len() > 1
	if lost > 0 || answer.Bounded {
		answer.Local, _ = v.Ceiling(l.Units, p.OnPartition, all, 0)
	}
	answer.Used = all[v.self]
	answer.Mode, answer.Reason = v.Mode(p.OnPartition)
	if explain {
		answer.Terms = c.withOffsets(v.Explain(l.Units, p.OnPartition, all, c.held(s, key, now), lost, s.former...))
		if answer.Bounded {
			c.explainBound(p.Name, l, &answer)
		}
	}
	return answer
}

// held is what of the estimates open reservations hold, in the view's order.
func (c *Ceilings) held(s *snapshot, key *quota.CounterKey, now time.Duration) []int64 {
	raw, held := make([]int64, len(s.order)), make([]int64, len(s.order))
	c.ledger.Held(c.o.Key.CounterID(key), now, raw)
	for n, i := range s.order {
		if i >= 0 {
			held[n] = raw[i]
		}
	}
	return held
}

// explainBound adds the terms of a bound, as far as they are not the store's.
func (c *Ceilings) explainBound(policy string, l *quota.Limit, of *quota.Ceiling) {
	units, _ := l.Bound()
	keep := c.keep(c.limits.Load().nameOf(policy, l), l)
	b := &quota.BoundTerms{Units: units, Share: of.Bound.Share, KeepMS: keep.Milliseconds()}
	of.Terms.Part, of.Terms.Bound = of.Bound.Share, b
	of.Terms.Formula = fmt.Sprintf("max(0, share %d − lent + borrowed − recalled)", b.Share)
	if l.MaxOvershoot != quota.Strict && !of.Closed {
		b.Estimate = of.Units
		of.Terms.Formula = fmt.Sprintf("min(%d by the estimate of what others used, %s)", of.Units, of.Terms.Formula)
	}
	b.Close(of.Bound, c.o.TimeUS())
	if c.o.Files == nil {
		return
	}
	differ, unseen, alike := c.o.Files()
	if b.Differ, b.Unseen = differ, unseen; len(differ) > 0 {
		alike = 0
	}
	b.PendingMS = max(0, keep-alike).Milliseconds()
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
		all, lost, _, _ := e.at(c, s, id, key.Tenant, l, now+time.Duration(ms)*time.Millisecond, 0)
		ceiling, _ := v.units(l, p.OnPartition, all, lost)
		return ceiling >= units
	})
	if after == 0 && l.MaxOvershoot > 0 { // it is the bound that denies
		return l.Window
	}
	return min(l.Window, time.Duration(after)*time.Millisecond)
}

// Asked implements limiter.Global.
func (c *Ceilings) Asked(key *quota.CounterKey, a loan.Ask) {
	if c.asked != nil {
		c.asked(c.o.Key.LoansID(key), key, a)
	}
}

// Record implements limiter.Global.
func (c *Ceilings) Record(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, t quota.Counter, g quota.Gauge, storeUS int64) {
	s := c.series(ctx, p, l, key)
	c.ledger.Record(&s, t, g, storeUS)
}

// Local implements limiter.Global.
func (c *Ceilings) Local(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64) {
	s := c.series(ctx, p, l, key)
	us := c.o.TimeUS()
	if l.Calendar != nil {
		s.Now = l.Calendar.At(us)
	}
	c.ledger.Local(&s, units, us)
}

func (c *Ceilings) series(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey) ledger.Series {
	s := ledger.Series{
		ID: c.o.Key.CounterID(key), Tenant: key.Tenant, Limit: c.limits.Load().nameOf(p.Name, l), Units: l.Units,
		WindowUS: l.WindowUS(), Periods: l.Calendar != nil,
	}
	if c.o.Check != nil {
		s.Check = c.o.Check(ctx)
	}
	return s
}
