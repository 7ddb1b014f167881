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
	Rate    int // requests a second to regiond, over all regions
	Bare    int // requests a second to the bare handlers, over all regions
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
			{rate: float64(l.Rate) * share, draw: func(_ int, random *rand.Rand, r *Record) bool {
				r.Class, r.Tenant, r.Cost = l.Profile.draw(random)
				return r.Class != Ledger // the times of the store are needed of these
			}},
			{rate: float64(time.Second / QuietEvery), draw: func(n int, _ *rand.Rand, r *Record) bool {
				r.Class, r.Tenant, r.Cost = Quiet, tenantOf(Quiet, n%QuietTenants), 1
				return false
			}},
			{rate: float64(l.Bare) / float64(len(l.Targets)), draw: func(_ int, _ *rand.Rand, r *Record) bool {
				r.Bare, r.Tenant, r.Cost = true, "bare", 1
				return false
			}},
		}
		for k, s := range streams {
			random := rand.New(rand.NewPCG(l.Seed, uint64(i)<<8|uint64(k)))
			wg.Go(func() { l.send(ctx, began, &l.Targets[i], s, random) })
		}
	}
	wg.Wait()
}

// stream is requests of one kind to one region. draw fills in the n-th and reports whether
// it is to be explained.
type stream struct {
	rate float64
	draw func(n int, random *rand.Rand, r *Record) (explain bool)
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
		r := Record{Region: to.Region, Due: due}
		explain := s.draw(n, random, &r)
		wg.Go(func() { l.ask(to, &r, explain) })
	}
}

func (l *Load) ask(to *Target, r *Record, explain bool) {
	client := to.Regiond
	if r.Bare {
		client = to.Bare
	}
	r.Call = l.History.Now()
	client.Check(r, explain)
	r.Return = l.History.Now()
	l.History.Add(r)
}
