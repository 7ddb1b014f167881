package top

import (
	"context"
	"hash/maphash"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/quota"
)

// kinds are what is counted.
var kinds = [...]quota.TopBy{quota.TopDenied, quota.TopUsed}

const (
	// foldEvery is the longest that an event waits to be counted.
	foldEvery = time.Second
	// queuePerProcessor is how many events wait at most for each of up to mostProcessors. At 100,000 decisions a second
	// on two processors the queue is full after 80 ms, and the folding goroutine is called at the half.
	queuePerProcessor, mostProcessors = 4096, 8
)

// Event is a decision about the limits of one partition.
type Event struct {
	Key    string         // of the partition in the store
	Limits []*quota.Limit // that are asked of the key; never changed
	Which  uint64         // bit i is Limits[i]
	Units  int64          // of each of them
	By     quota.TopBy
}

// Recorder counts what is denied and used. Record may be called from anywhere and never waits;
// what it is given is counted by the goroutine of Run, or by whoever asks.
//
//	Record ─▶ queue ─ fold ─▶ series of denied, of used ─▶ list
type Recorder struct {
	queue  chan Event
	wake   chan struct{}
	noRoom [len(kinds)]losses
	seed   maphash.Seed
	now    func() time.Duration // since it began
	lost   *instruments.Counter // events that found no room

	mu     sync.Mutex // the reader of the queue
	series [len(kinds)]series
}

// losses are what found no room.
type losses struct{ events, units, all atomic.Int64 }

// NewRecorder returns a Recorder. now is its clock, nil for time.Now; m may be nil.
func NewRecorder(now func() time.Time, m metric.Meter) (*Recorder, error) {
	if now == nil {
		now = time.Now
	}
	start := now()
	r := &Recorder{
		queue: make(chan Event, queuePerProcessor*min(runtime.GOMAXPROCS(0), mostProcessors)), wake: make(chan struct{}, 1),
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
	select {
	case r.queue <- e:
	default:
		l := &r.noRoom[e.By]
		l.units.Add(e.Units)
		l.all.Add(e.Units * int64(bits.OnesCount64(e.Which)))
		l.events.Add(1)
	}
	if len(r.queue) >= cap(r.queue)/2 {
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

// fold counts what is in the queue.
func (r *Recorder) fold() {
	now := r.now()
	for i := range r.series {
		r.series[i].advance(now)
	}
	for range len(r.queue) { // a flood cannot keep it here
		e := <-r.queue
		r.count(&e)
	}
	for by := range r.noRoom {
		l := &r.noRoom[by]
		r.lost.Add(l.events.Swap(0))
		r.series[by].minute.lose(l.units.Swap(0), l.all.Swap(0))
	}
}

func (r *Recorder) count(e *Event) {
	hash := bits.RotateLeft64(maphash.String(r.seed, e.Key), 1)
	minute := r.series[e.By].minute
	for i, l := range e.Limits {
		if e.Which&(1<<i) != 0 {
			minute.add(hash^maphash.String(r.seed, l.Name), e.Units, name{e.Key, l.Name})
		}
	}
}
