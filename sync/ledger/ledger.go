package ledger

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
)

const (
	// DefaultMaxSeries is about twice the million partitions that one region is
	// meant to know.
	DefaultMaxSeries = 2_000_000
	// maxMaxSeries is where the numbers that name totals would become too small.
	maxMaxSeries = 1 << 28
	// MaxRegions is how many regions a ledger can name in its life, ours included:
	// more than a topology may have, and a totals' region fits seven bits.
	MaxRegions = 128
	// cellsPerSeries bounds all totals, on average over MaxSeries: ten regions with
	// two buckets each need 20, but never for every series at once.
	cellsPerSeries = 16
	// maxCells bounds the totals of one region in one series. The finest limit has
	// 61 live buckets and up to 60 more whose window is not over; the rest is for
	// epochs, of which a month-long bucket may see many. An author that invents
	// epochs gets this far and no further.
	maxCells = 256
	// shardCount is 2^6 locks: the six upper bits of an id choose one, so ids in
	// ascending order come shard by shard.
	shardCount = 64
	shardShift = 64 - 6
	// fullFor is how long Full remembers at most. A peer's total that was turned away
	// comes again within it while the peer holds at most 1,200,000 totals of its own,
	// in however many buckets: so many its rolling digest passes by in a minute. One of
	// more, or of ours, can be missing for longer where a window is.
	fullFor = time.Minute
)

// Options are what a Ledger needs of the rest.
type Options struct {
	// Self is our region's name.
	Self string
	// Boot is when this process started, µs: the epoch of what it admits while its
	// store is away.
	Boot int64
	// Now is this process's monotonic clock, not negative. Safe for concurrent use,
	// and fast: every Record asks it.
	Now func() time.Duration
	// Limit gives L of a limit "<policy>.<limit>" in the configuration in force. It
	// is called by Sweep, Fold, Record and Local once for each window that ended,
	// under no lock. Safe for concurrent use.
	Limit func(name string) (units int64, ok bool)
	// Regions is R, how many regions the topology has; with 1 nothing is published.
	// Safe for concurrent use, and fast: every Record asks it.
	Regions func() int
	// MaxSeries bounds the series; 0 means DefaultMaxSeries. All totals together are
	// bounded by sixteen times as many.
	MaxSeries int
	// Overshoot hears the true global count of each aligned window of a series, once
	// it is over, and L. Called as Limit is; nil means nobody listens.
	Overshoot func(limit string, units, limitUnits int64)
	// Meter makes the instruments; nil means there are none.
	Meter metric.Meter
}

// validate fills in the defaults and returns everything that is wrong.
func (o *Options) validate() error {
	var errs []error
	if o.Self == "" {
		errs = append(errs, errors.New("option Self is missing: the name of our own region"))
	}
	if o.Boot <= 0 || o.Boot >= maxUS {
		errs = append(errs, fmt.Errorf("option Boot must be a time between 1970 and 2112 in µs, is %d", o.Boot))
	}
	if o.Now == nil || o.Limit == nil || o.Regions == nil {
		errs = append(errs, errors.New("options Now, Limit and Regions are all needed"))
	}
	if o.MaxSeries < 0 || o.MaxSeries > maxMaxSeries {
		errs = append(errs, fmt.Errorf("option MaxSeries must be between 0 and %d, is %d", maxMaxSeries, o.MaxSeries))
	}
	if o.MaxSeries == 0 {
		o.MaxSeries = DefaultMaxSeries
	}
	if o.Meter == nil {
		o.Meter = noop.Meter{}
	}
	return errors.Join(errs...)
}

// Series names what a total is counted for: a partition under one limit.
type Series struct {
	ID    uint64 // keyed hash of the partition, see package wire
	Limit string // "<policy>.<limit>"
	Units int64  // L
	// WindowUS is W and BucketUS the length of a bucket (quota.Limit.BucketUS), µs.
	// An id that is counted in other lengths, here or in another region, because a
	// configuration changed, is another series; Estimates adds them up.
	WindowUS, BucketUS int64
	// Check is the span of the check that has just charged it, when that is sampled;
	// else nil. It is no part of the name.
	Check *trace.SpanContext
}

// Ledger is the replicated state of one process, and its outbox. Safe for
// concurrent use.
type Ledger struct {
	self      string
	boot      int64
	now       func() time.Duration
	limit     func(string) (int64, bool)
	regions   func() int
	overshoot func(string, int64, int64)
	maxSeries int64
	metrics   *metrics
	urgent    chan struct{}
	checks    checks

	shards [shardCount]shard
	shapes shapes

	series    atomic.Int64 // how many
	listed    atomic.Int64 // how many of them are in the outbox
	cells     atomic.Int64
	owned     atomic.Int64 // how many of them are our own
	fullUntil atomic.Int64 // µs of our clock
	swept     atomic.Uint32
	census    census

	// clocks are each region's store clock minus ours, µs, as told last; 0 is never.
	clocks [MaxRegions]atomic.Int64

	namesMu sync.RWMutex
	names   []string // index → region, 0 is ours

	rollMu sync.Mutex
	roll   roll
}

// New makes an empty ledger. It is safe to forget: there is nothing to close.
func New(o Options) (*Ledger, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	l := &Ledger{
		self: o.Self, boot: o.Boot, now: o.Now, limit: o.Limit, regions: o.Regions, overshoot: o.Overshoot,
		maxSeries: int64(o.MaxSeries), urgent: make(chan struct{}, 1), names: []string{o.Self},
	}
	l.shapes.index = make(map[shapeKey]uint32)
	for i := range l.shards {
		l.shards[i].index = make(map[uint64]uint32)
		l.shards[i].listed = &l.listed
	}
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
	if i := l.known(name); i >= 0 {
		return i
	}
	l.namesMu.Lock()
	defer l.namesMu.Unlock()
	if i := slices.Index(l.names, name); i >= 0 {
		return i
	}
	if len(l.names) == MaxRegions {
		return -1
	}
	l.names = append(l.names, name)
	return len(l.names) - 1
}

// known is Region without assigning one.
func (l *Ledger) known(name string) int {
	l.namesMu.RLock()
	defer l.namesMu.RUnlock()
	return slices.Index(l.names, name)
}

// Series is how many series are known.
func (l *Ledger) Series() int { return int(l.series.Load()) }

// Own is how many totals of our own region are held: live ones, and those that are over
// while others of their aligned window are not.
func (l *Ledger) Own() int { return int(l.owned.Load()) }

// Full reports whether something live was turned away for want of room lately: in
// the last two of its windows, and at most a minute.
func (l *Ledger) Full() bool { return l.nowUS() < l.fullUntil.Load() }

// turnedAway notes that a total with this window found no room.
func (l *Ledger) turnedAway(windowUS, nowUS int64) {
	l.metrics.turnedAway()
	until := nowUS + min(2*windowUS, fullFor.Microseconds())
	for {
		old := l.fullUntil.Load()
		if old >= until || l.fullUntil.CompareAndSwap(old, until) {
			return
		}
	}
}

func (l *Ledger) nowUS() int64 { return l.now().Microseconds() }

func (l *Ledger) shard(id uint64) *shard { return &l.shards[id>>shardShift] }

// tell notes a region's store clock as it is at nowUS of ours. Differences of less
// than a millisecond are noise, not worth a write to memory that all share.
func (l *Ledger) tell(region int, clockUS, nowUS int64) {
	c := &l.clocks[region]
	if d := clockUS - nowUS - c.Load(); d < -1000 || d > 1000 {
		c.Store(clockUS - nowUS)
	}
}

// ClockUS is the store clock of a region at a moment of our clock, by the message or
// the Record that told of it last; false when none did.
func (l *Ledger) ClockUS(region string, at time.Duration) (us int64, known bool) {
	i := l.known(region)
	if i < 0 {
		return 0, false
	}
	d := l.clocks[i].Load()
	return d + at.Microseconds(), d != 0
}

// ahead reports whether a bucket lies so far ahead of its region's clock that a
// peer would refuse it. That is so after the clock stepped back: such totals still
// count here, but are not sent, since a message is refused as a whole.
func (l *Ledger) ahead(region int, bucket int64, sp *shape, nowUS int64) bool {
	return bucket*sp.bucketUS > l.clocks[region].Load()+nowUS+sp.bucketUS/2
}
