package global

import (
	"context"
	"errors"
	"sort"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/view"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// Options are what New needs; all but MaxSeries, Offsets, Overshoot and Meter are required.
type Options struct {
	// Self is this process.
	Self quota.Process
	// Now is this process's monotonic clock, and TimeUS that of its region's store, µs
	// since the epoch. Both are safe for concurrent use, and fast.
	Now    func() time.Duration
	TimeUS func() int64
	// Key turns the names of totals into ids; all regions have the same.
	Key wire.Key
	// Topology is in force at first; see Configure.
	Topology *region.Topology
	// MaxSeries bounds the partitions that are known; 0 means ledger.DefaultMaxSeries.
	MaxSeries int
	// Offsets are shown where a decision is explained; nil: not known.
	Offsets *clock.PeerOffsets
	// Overshoot hears what all regions used in each aligned window that is over, and L.
	Overshoot func(limit string, units, limitUnits int64)
	// Check is the span of a request that is sampled, nil for any other; nil where
	// nothing is traced.
	Check func(context.Context) *trace.SpanContext
	// Meter makes the ledger's instruments; nil means there are none.
	Meter metric.Meter
}

func (o *Options) validate() error {
	if o.Now == nil || o.TimeUS == nil || o.Topology == nil {
		return errors.New("global: Now, TimeUS and Topology are required")
	}
	return nil
}

// Ceilings tells the limiter what the other regions leave for this one: the
// view says whom we may count on, the ledger what they have used. Nothing in it
// waits for anybody. Safe for concurrent use.
//
//	limiter ── Ceiling, Grows ──▶ view.View (who) × ledger.Ledger (how much)
//	        ── Record, Local  ──▶ ledger.Ledger ──▶ mesh
type Ceilings struct {
	o      Options
	ledger *ledger.Ledger
	sight  atomic.Pointer[sight] // set before the first decision
	book   atomic.Pointer[book]
}

// New returns Ceilings that know of nobody yet. See has to be called before the
// first decision; a Lookout does.
func New(o Options) (*Ceilings, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Ceilings{o: o}
	c.Configure(o.Topology)
	var err error
	c.ledger, err = ledger.New(ledger.Options{
		Self: o.Self.Region, Boot: o.Self.Boot, Now: o.Now, MaxSeries: o.MaxSeries,
		Limit:     func(name string) (int64, bool) { return c.book.Load().limit(name) },
		Regions:   func() int { return c.book.Load().regions },
		Overshoot: o.Overshoot,
		Meter:     o.Meter,
	})
	return c, err
}

// Ledger holds what every region has used.
func (c *Ceilings) Ledger() *ledger.Ledger { return c.ledger }

// Configure puts a topology in force.
func (c *Ceilings) Configure(top *region.Topology) { c.book.Store(newBook(top)) }

// Units lists the capacities of the global limits in force, each once.
func (c *Ceilings) Units() []int64 { return c.book.Load().units }

// See has decisions go by a view from now on.
func (c *Ceilings) See(v *view.View) { c.sight.Store(c.newSight(v)) }

// View is what decisions go by now.
func (c *Ceilings) View() *view.View { return c.sight.Load().At(c.o.Now()) }

// sight is a view, and where its regions stand in the ledger.
type sight struct {
	*view.View
	order []int // order[i] is the ledger's index of the view's i-th region
	width int   // one more than the largest
}

func (c *Ceilings) newSight(v *view.View) *sight {
	s := &sight{View: v}
	for _, name := range v.Regions() {
		i := c.ledger.Region(name)
		s.order, s.width = append(s.order, i), max(s.width, i+1)
	}
	return s
}

// onStack is for how many regions a decision needs no memory of its own.
const onStack = 16

// estimates is room for the units that each region is believed to have used. It
// stays on the stack of whoever asks, so it does not keep what it hands out.
type estimates struct {
	raw, ordered [onStack]int64
}

// at gives the units of all regions in the limit's window at a time, in the view's order,
// and what our own store has lost. They are good until the next call.
func (e *estimates) at(c *Ceilings, s *sight, id uint64, l *quota.Limit, at time.Duration) (all []int64, lost int64) {
	raw, all := e.raw[:], e.ordered[:0]
	if s.width > onStack || len(s.order) > onStack {
		raw, all = make([]int64, s.width), make([]int64, 0, len(s.order))
	}
	lost = c.ledger.Estimates(id, l.WindowUS(), at, raw[:s.width])
	for _, i := range s.order {
		units := int64(0)
		if i >= 0 {
			units = raw[i]
		}
		all = append(all, units)
	}
	return all, lost
}

// Ceiling implements limiter.Global.
func (c *Ceilings) Ceiling(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, explain bool) quota.Ceiling {
	now := c.o.Now()
	s := c.sight.Load()
	v := s.At(now)
	var e estimates
	all, lost := e.at(c, s, c.o.Key.CounterID(key), l, now)
	var answer quota.Ceiling
	answer.Units, answer.Closed = v.Ceiling(l.Units, p.OnPartition, all, lost)
	answer.Local = answer.Units
	if lost > 0 {
		answer.Local, _ = v.Ceiling(l.Units, p.OnPartition, all, 0)
	}
	answer.Mode, answer.Reason = v.Mode(p.OnPartition)
	if explain {
		answer.Terms = c.terms(v.Explain(l.Units, p.OnPartition, all, lost), lost)
	}
	return answer
}

func (c *Ceilings) terms(x view.Explanation, lost int64) *quota.CeilingTerms {
	terms := &quota.CeilingTerms{Formula: x.Formula, Part: x.Part, Lost: lost}
	offsets := map[string]time.Duration{}
	if c.o.Offsets != nil {
		for _, o := range c.o.Offsets.Peers() {
			offsets[o.Peer] = o.Offset
		}
	}
	for _, t := range x.Peers {
		terms.Peers = append(terms.Peers, quota.PeerTerm{
			Region: t.Region, Weight: t.Weight, Part: t.Part, Estimate: t.Estimate, Counted: t.InView,
			State: t.State.String(), Reason: t.Reason, AgeMS: ageMS(t.Age), OffsetMS: ms(offsets[t.Region]),
		})
	}
	return terms
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// ageMS is an age for an answer, −1 for never.
func ageMS(age time.Duration) int64 {
	if age == view.Never {
		return -1
	}
	return age.Milliseconds()
}

// Grows implements limiter.Global. Estimates only fade while nobody spends, so it
// halves the window until it knows the millisecond.
func (c *Ceilings) Grows(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64) time.Duration {
	now := c.o.Now()
	s := c.sight.Load()
	v, id := s.At(now), c.o.Key.CounterID(key)
	var e estimates
	reached := func(after time.Duration) bool {
		all, lost := e.at(c, s, id, l, now+after)
		ceiling, _ := v.Ceiling(l.Units, p.OnPartition, all, lost)
		return ceiling >= units
	}
	window := int(l.Window.Milliseconds())
	after := sort.Search(window, func(ms int) bool { return reached(time.Duration(ms) * time.Millisecond) })
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
	name, ok := c.book.Load().names[l]
	if !ok { // of a configuration that is being replaced
		name = limitName(p.Name, l.Name)
	}
	s := ledger.Series{ID: c.o.Key.CounterID(key), Limit: name, Units: l.Units, WindowUS: l.WindowUS(), BucketUS: l.BucketUS()}
	if c.o.Check != nil {
		s.Check = c.o.Check(ctx)
	}
	return s
}
