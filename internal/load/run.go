package load

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// Request is one check.
type Request struct {
	Tenant string
	Policy string // "" for the tenant's own
	Cost   int64
}

// Answer is what came of one request.
type Answer struct {
	Allowed   bool   `json:"allowed"`
	WouldDeny bool   `json:"would_deny"` // allowed because the policy only observes
	Basis     string `json:"basis"`
	Mode      string `json:"mode"`
	Reason    string `json:"reason"` // "" unless the answer is a degraded one

	Fault  string `json:"-"` // why there is none of regiond's: one of a few words, else ""
	Detail string `json:"-"` // of a fault, for a person
}

// Asker sends one check to one target and returns what came of it. It is called from
// many goroutines at once, never sends anything twice, and returns soon after ctx ends.
type Asker interface {
	Ask(ctx context.Context, target string, r *Request) Answer
}

// Progress is how far a run has come. It counts the warm-up too.
type Progress struct {
	Passed  time.Duration
	Warming bool
	Counts
	Unsent   int64
	InFlight int64
}

// progressEvery is how often a run reports its progress; a person reads no faster.
const progressEvery = time.Second

// overrun is how late the end of a run may be sent, so that a pause of the machine at
// the very end loses nothing, and a machine that is too slow ends all the same.
const overrun = time.Second

// Run sends what o describes through a and returns what came back, once every request has its
// answer or its time is up. When ctx ends before, it sends nothing more, waits for
// what is under way and returns what there is. onProgress, which may be nil, is called once
// a second from one other goroutine. An error means that o is not valid.
func Run(ctx context.Context, o Options, a Asker, onProgress func(Progress)) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return run(ctx, o, a, onProgress, wait), nil
}

// run is Run, in the time of wait.
func run(ctx context.Context, o Options, a Asker, onProgress func(Progress), wait func(context.Context, time.Time)) *Result {
	p := &pacer{
		Options: o, asker: a, wait: wait, began: time.Now(),
		slots: make(chan struct{}, o.MaxInFlight), warm: o.requests(o.Warmup),
		tenants: newZipf(o.Tenants, o.Zipf), random: rand.New(rand.NewPCG(o.Seed, 0)), all: newTally(),
	}
	for range o.Targets {
		p.tallies = append(p.tallies, newTally())
	}
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	var reporter sync.WaitGroup
	if onProgress != nil {
		reporter.Go(func() { p.report(ended, onProgress) })
	}
	p.send(ctx)
	p.calls.Wait()
	end()
	reporter.Wait()
	return p.result()
}

// pacer is one run.
type pacer struct {
	Options
	asker   Asker
	wait    func(context.Context, time.Time)
	began   time.Time
	warm    int64 // requests of the warm-up
	tenants zipf
	random  *rand.Rand
	slots   chan struct{} // one taken for each request without an answer
	calls   sync.WaitGroup

	// Of the goroutine that sends, for the result.
	due     int64         // requests whose time came, the warm-up left out
	sending time.Duration // how long it sent them

	mu       sync.Mutex // guards all below
	all      *tally
	tallies  []*tally // by target
	progress Progress
}

// send has every request leave when it is due. One that finds all slots taken, or
// whose run is over by the time that its turn comes, is counted and not sent.
func (p *pacer) send(ctx context.Context) {
	all := p.warm + p.requests(p.For)
	end := p.began.Add(p.Options.due(all) + overrun)
	for n := range all {
		due := p.began.Add(p.Options.due(n))
		if p.wait(ctx, due); ctx.Err() != nil {
			return
		}
		r := Request{Tenant: p.Prefix + strconv.Itoa(p.tenants.draw(p.random)+1), Policy: p.Policy, Cost: p.Costs.draw(p.random)}
		if n >= p.warm {
			p.due++
			p.sending = max(time.Since(p.began.Add(p.Options.due(p.warm))), p.Options.due(n+1)-p.Options.due(p.warm))
		}
		switch {
		case time.Now().After(end):
			p.skip(n, func(t *tally) { t.unsent.Late++ })
		case len(p.slots) == cap(p.slots): // only this goroutine takes slots
			p.skip(n, func(t *tally) { t.unsent.InFlight++ })
		default:
			p.slots <- struct{}{}
			p.calls.Go(func() { p.ask(ctx, n, &r, due) })
		}
	}
}

// skip counts request n, which is not sent.
func (p *pacer) skip(n int64, count func(*tally)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress.Unsent++
	p.update(n, count)
}

// update counts request n for its target and for all, unless it is one of the warm-up.
// p.mu is held.
func (p *pacer) update(n int64, count func(*tally)) {
	if n >= p.warm {
		count(p.all)
		count(p.tallies[n%int64(len(p.tallies))])
	}
}

// ask sends request n and counts its answer. The end of ctx does not cut it off:
// it was sent, so it was charged, and what became of it belongs into the result.
func (p *pacer) ask(ctx context.Context, n int64, r *Request, due time.Time) {
	defer func() { <-p.slots }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Timeout)
	defer cancel()
	sent := time.Now()
	a := p.asker.Ask(ctx, p.Targets[n%int64(len(p.Targets))], r)
	done := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress.add(&a)
	p.update(n, func(t *tally) { t.add(&a, sent.Sub(due), done.Sub(sent)) })
}

// report calls onProgress once a second until ctx ends.
func (p *pacer) report(ctx context.Context, onProgress func(Progress)) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		now := p.progress
		p.mu.Unlock()
		now.Passed, now.InFlight = time.Since(p.began), int64(len(p.slots))
		now.Warming = now.Passed < p.Warmup
		now.Sent += now.InFlight
		onProgress(now)
	}
}
