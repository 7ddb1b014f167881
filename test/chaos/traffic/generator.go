//go:build linux

package traffic

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Target is a region that receives traffic: its regiond and its bare handler.
type Target struct {
	Region  string
	Regiond *Client
	Bare    *Client
}

// Load is traffic to be sent.
type Load struct {
	Profile Profile
	Rate    int  // requests a second to regiond, over all regions
	Bare    int  // requests a second to the bare handlers, over all regions
	Bounded bool // requests to each region of strict, tenth, month and hour
	Seed    uint64
	History *History
	Targets []Target
}

// Run sends the traffic until ctx ends, waits for all answers and returns.
func (l *Load) Run(ctx context.Context) {
	began := l.History.Now()
	var wg sync.WaitGroup
	for i := range l.Targets {
		share := float64(l.Profile.Regions[i]) / 100
		streams := []stream{
			{float64(l.Rate) * share, 1, func(_ int, random *rand.Rand, r *Record) bool {
				r.Class, r.Tenant, r.Cost = l.Profile.draw(random)
				return r.Class != Ledger // the times of the store are needed of these
			}},
			{float64(time.Second / QuietEvery), 1, func(n int, _ *rand.Rand, r *Record) bool {
				r.Class, r.Tenant, r.Cost = Quiet, tenantOf(Quiet, n%QuietTenants), 1
				return false
			}},
			{float64(l.Bare) / float64(len(l.Targets)), 1, func(_ int, _ *rand.Rand, r *Record) bool {
				r.Bare, r.Tenant, r.Cost = true, "bare", 1
				return false
			}},
		}
		if l.Bounded {
			streams = append(streams, stream{BoundRate, 1, func(_ int, random *rand.Rand, r *Record) bool {
				r.Class, r.Tenant, r.Cost = bounded(i, len(l.Targets), r.Due, random)
				return true
			}}, stream{MonthRate, 1, func(_ int, _ *rand.Rand, r *Record) bool {
				r.Class, r.Tenant, r.Cost = Month, tenantOf(Month, 0), 1
				return true
			}}, stream{HourRate, 1, func(_ int, _ *rand.Rand, r *Record) bool {
				r.Class, r.Tenant, r.Cost = Hour, hourly(i, len(l.Targets), r.Due), 1
				return true
			}})
		}
		for k, s := range streams {
			random := rand.New(rand.NewPCG(l.Seed, uint64(i)<<8|uint64(k)))
			wg.Go(func() { l.send(ctx, began, &l.Targets[i], s, random) })
		}
	}
	wg.Wait()
}

// BatchSize is how many checks a request of Crowd has.
const BatchSize = 10

// Crowd sends rate checks a second to one region until ctx ends, in batches, and waits for
// all answers. Of ten batches nine are of class dear and one is edge's.
func (l *Load) Crowd(ctx context.Context, to *Target, rate float64) {
	l.send(ctx, l.History.Now(), to, crowd(rate), rand.New(rand.NewPCG(l.Seed, 1<<16)))
}

// Saturate does the same in a closed loop: each caller sends a batch when its last one has
// been answered.
func (l *Load) Saturate(ctx context.Context, to *Target, callers int) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for caller := range callers {
		s, random := crowd(0), rand.New(rand.NewPCG(l.Seed, 2<<16|uint64(caller)))
		wg.Go(func() {
			for n := caller; ctx.Err() == nil; n++ {
				l.ask(to, s.next(n, random, to, l.History.Now()))
			}
		})
	}
}

func crowd(rate float64) stream {
	return stream{rate: rate / BatchSize, checks: BatchSize, draw: func(n int, random *rand.Rand, r *Record) bool {
		if n%10 == 0 {
			r.Class, r.Tenant, r.Cost = Edge, tenantOf(Edge, random.IntN(EdgeTenants)), 1+random.Int64N(2)
			return true
		}
		r.Class, r.Tenant, r.Cost = Dear, tenantOf(Dear, random.IntN(DearTenants)), 1+random.Int64N(5)
		return false
	}}
}

// stream is requests of one kind to one region.
type stream struct {
	rate   float64 // requests a second
	checks int     // in each
	// draw fills in a check of the n-th request and reports whether that is to be explained.
	draw func(n int, random *rand.Rand, r *Record) (explain bool)
}

// request is checks that are sent together.
type request struct {
	checks  []Record
	explain bool
}

// next is the n-th request of a stream.
func (s *stream) next(n int, random *rand.Rand, to *Target, due time.Duration) request {
	r := request{checks: make([]Record, s.checks)}
	for i := range r.checks {
		r.checks[i] = Record{Region: to.Region, Due: due, Batch: s.checks > 1}
		r.explain = s.draw(n, random, &r.checks[i])
	}
	return r
}

// send sends a stream's requests when they are due.
func (l *Load) send(ctx context.Context, began time.Duration, to *Target, s stream, random *rand.Rand) {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; s.rate > 0; n++ {
		due := began + l.Profile.due(n, s.rate)
		timer.Reset(max(0, due-l.History.Now()))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		r := s.next(n, random, to, due)
		wg.Go(func() { l.ask(to, r) })
	}
}

func (l *Load) ask(to *Target, r request) {
	client := to.Regiond
	if r.checks[0].Bare {
		client = to.Bare
	}
	call := l.History.Now()
	client.Check(r.checks, r.explain)
	l.History.Add(r.checks, call)
}
