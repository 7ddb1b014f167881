package top

import (
	"context"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// kinds are what is counted.
var kinds = [...]quota.TopBy{quota.TopDenied, quota.TopUsed}

const (
	// foldEvery is the longest that an event waits to be counted.
	foldEvery = time.Second
	// mostRings are enough that few processors meet in one.
	mostRings = 8
)

// Recorder counts what is denied and used. Record may be called from anywhere and takes no lock;
// what it is given is counted by the goroutine of Run, or by whoever asks.
//
//	Record ─▶ rings ─ fold ─▶ series of denied, of used ─▶ list
type Recorder struct {
	rings []ring
	mask  uint32 // of rings
	wake  chan struct{}
	seed  maphash.Seed
	now   func() time.Duration // since it began
	lost  *instruments.Counter // events that found no room

	mu     sync.Mutex // the reader of the rings
	series [len(kinds)]series
}

// NewRecorder returns a Recorder. now is its clock, nil for time.Now; m may be nil.
func NewRecorder(now func() time.Time, m metric.Meter) (*Recorder, error) {
	if now == nil {
		now = time.Now
	}
	start := now()
	n := 1 << bits.Len(uint(min(runtime.GOMAXPROCS(0), mostRings)-1))
	r := &Recorder{
		rings: make([]ring, n), mask: uint32(n - 1), wake: make(chan struct{}, 1),
		seed: maphash.MakeSeed(), now: func() time.Duration { return now().Sub(start) },
	}
	for i := range r.series {
		r.series[i] = newSeries()
	}
	i := instruments.On(m)
	r.lost = i.Counter("regiond.top.lost", "{decision}",
		"Decisions whose partition is unknown in /v1/top, because too many came at once. Its bounds are wider by them.")
	return r, i.Err()
}

// Record counts an event, soon. It never waits, and allocates nothing.
func (r *Recorder) Record(e Event) {
	if r.rings[rand.Uint32()&r.mask].put(e) {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Run counts what is recorded until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	tick := time.NewTicker(foldEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.wake:
		}
		r.mu.Lock()
		r.fold()
		r.mu.Unlock()
	}
}

// fold counts what is in the rings.
func (r *Recorder) fold() {
	now := r.now()
	for i := range r.series {
		r.series[i].advance(now)
	}
	for i := range r.rings {
		ring := &r.rings[i]
		for range ringSize { // a flood cannot keep it here
			e, ok := ring.take()
			if !ok {
				break
			}
			r.count(&e)
		}
		for by := range ring.lost {
			l := &ring.lost[by]
			r.lost.Add(l.events.Swap(0))
			r.series[by].minute.lose(l.units.Swap(0), l.all.Swap(0))
		}
	}
}

func (r *Recorder) count(e *Event) {
	hash := bits.RotateLeft64(maphash.String(r.seed, e.Key), 1)
	minute := r.series[e.By].minute
	for i, l := range e.Limits {
		if e.Which&(1<<i) != 0 {
			minute.add(hash^maphash.String(r.seed, l.Name), e.Units, func() string { return nameOf(e.Key, l.Name) })
		}
	}
}

// nameOf is the text of a counter's name.
func nameOf(key, limit string) string {
	tenant, policy, partition := store.ParseKey(key)
	k := quota.CounterKey{Tenant: tenant, Policy: policy, Limit: limit, Partition: partition}
	var array [256]byte
	return string(k.AppendID(array[:0]))
}
