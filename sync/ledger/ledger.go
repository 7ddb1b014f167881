package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const (
	// DefaultMaxSeries is about twice the million partitions that one region is
	// meant to know.
	DefaultMaxSeries = 2_000_000
	// MaxRegions is how many regions a ledger can name in its life, ours included:
	// more than a topology may have.
	MaxRegions = 1 << regionBits
	// countersPerSeries bounds all counters, on average over MaxSeries: ten regions with
	// two buckets each need 20, but never for every series at once.
	countersPerSeries = 16
	// maxCounters bounds the counters of one region in one series. Two or three buckets
	// are live; the rest is for generations, of which a month-long bucket may see many. An
	// author that invents generations gets this far and no further.
	maxCounters = 256
)

// Options are what a Ledger needs of the rest. Self, Boot, Now, Limit, Regions and Most are required.
type Options struct {
	// Self is our region's name.
	Self string
	// Boot is when this process started, µs: the generation of what it admits while its
	// store is away.
	Boot int64
	// Now is this process's monotonic clock, not negative. Safe for concurrent use,
	// and fast: every Record calls it.
	Now func() time.Duration
	// Limit gives L of a limit "<policy>.<limit>" in the configuration in force. Sweep, Fold,
	// Record and Local call it when windows of a series end, under a lock: it must not wait,
	// nor call the Ledger. Safe for concurrent use.
	Limit func(name string) (units int64, ok bool)
	// Regions is R, how many regions the topology has; with 1 nothing is published.
	// Safe for concurrent use, and fast: every Record calls it.
	Regions func() int
	// MaxSeries bounds the series; 0 means DefaultMaxSeries. All counters together are
	// bounded by sixteen times as many.
	MaxSeries int
	// Overshoot is given the true global count of each aligned window of a series, once
	// it is over, and L as our region goes by it. A window above the L of Limit that our region has not used is left out, since an
	// override may allow it. It is called as Limit is, and may be nil.
	Overshoot func(limit string, units, limitUnits int64)
	// Most is how many units one region may admit under a limit in a bucket, math.MaxInt64 for
	// one that is not in force. units is L as our region goes by it for the partition, 0 where it has not used that: only then
	// may an override be in force that is not known here. Of what our region used beyond that nothing is published, so
	// whoever claims more is not one of ours: Excess is given by how much, each time that a
	// region claims more, by Fold; it may be nil. Most is called under a lock, so it must not wait.
	Most   func(limit string, units int64) int64
	Excess func(region, limit string, units int64)
	// Lost is called when our store is found to have lost what it held, last seen at a TIME of it. It is called under
	// a lock, so it must not wait; it may be nil.
	Lost func(thereUS int64)
	// Returned is called by Record, under no lock, when what a reset of a tenant had deleted is
	// found in our store again; its cuts have changed. It may be nil.
	Returned func(tenant string)
	// Meter makes the instruments; nil means there are none.
	Meter metric.Meter
}

// Ledger is the replicated state of one process, and its outbox. Safe for
// concurrent use.
type Ledger struct {
	o       Options
	metrics *metrics
	urgent  chan struct{}
	limits  limits
	shards  [shardCount]shard
	resets  resets

	series    atomic.Int64 // how many
	counters  atomic.Int64
	fullUntil atomic.Int64 // µs of our clock
	sweep     sweep

	// clocks are each region's store clock minus ours, µs, by the newest message with
	// counters; 0 is none.
	clocks [MaxRegions]atomic.Int64

	take   sync.Mutex          // never locked under a shard's
	turn   int                 // shard where the next Take begins
	checks []trace.SpanContext // for Checks, MaxChecks at most

	names atomic.Pointer[[]string] // index → region, 0 is ours; never changed, but replaced
}

// New makes an empty ledger. There is nothing to close. It fails when an instrument cannot be made.
func New(o Options) (*Ledger, error) {
	o.MaxSeries = cmp.Or(o.MaxSeries, DefaultMaxSeries)
	l := &Ledger{
		o: o, urgent: make(chan struct{}, 1), limits: limits{known: map[limitKey]*limit{}},
	}
	for i := range l.shards {
		sh := &l.shards[i]
		sh.first = map[uint64]uint32{}
		for j := range sh.rings {
			sh.rings[j].prev, sh.rings[j].next = &sh.rings[j], &sh.rings[j]
		}
	}
	l.names.Store(&[]string{o.Self})
	l.resets.of.Store(&map[string]*cuts{})
	var err error
	if l.metrics, err = newMetrics(o.Meter, l); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return l, nil
}

// Region gives a region's index in what Estimates answers: 0 for our own, and for
// any other one that stays as it is while the process lives, assigned when first
// asked for. It is −1 when MaxRegions others came before.
func (l *Ledger) Region(name string) int {
	for {
		names := l.names.Load()
		if i := slices.Index(*names, name); i >= 0 {
			return i
		}
		if len(*names) == MaxRegions {
			return -1
		}
		more := append(slices.Clone(*names), name)
		l.names.CompareAndSwap(names, &more)
	}
}

// known is Region without assigning one.
func (l *Ledger) known(name string) int { return slices.Index(*l.names.Load(), name) }

// Names are the regions that Region has given an index, in the order of these.
func (l *Ledger) Names() []string { return slices.Clone(*l.names.Load()) }

// Series is how many series are known.
func (l *Ledger) Series() int { return int(l.series.Load()) }

// Full reports whether something live was turned away for want of room: in the last two
// of its windows.
func (l *Ledger) Full() bool { return l.nowUS() < l.fullUntil.Load() }

// turnedAway notes that a counter found no room.
func (l *Ledger) turnedAway(u *update) {
	l.metrics.turned.Add(1)
	until := u.nowUS + 2*u.limit.windowUS
	for old := l.fullUntil.Load(); old < until && !l.fullUntil.CompareAndSwap(old, until); {
		old = l.fullUntil.Load()
	}
}

func (l *Ledger) nowUS() int64 { return l.o.Now().Microseconds() }

// noteClock keeps a region's store clock as it is at nowUS of ours. Differences of less
// than a millisecond are noise, not worth a write to memory that all share.
func (l *Ledger) noteClock(region int, clockUS, nowUS int64) {
	c := &l.clocks[region]
	if d := clockUS - nowUS - c.Load(); d < -1000 || d > 1000 {
		c.Store(clockUS - nowUS)
	}
}

// ClockUS is the store clock of a region at a moment of our clock, by the newest
// message or Record; false when there was none.
func (l *Ledger) ClockUS(region string, at time.Duration) (us int64, known bool) {
	if i := l.known(region); i >= 0 {
		us = l.clock(i, at.Microseconds(), 0)
	}
	return us, us != 0
}
