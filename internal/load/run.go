package load

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Request is one check.
type Request struct {
	Tenant string
	Policy string // "" for the tenant's own
	Cost   int64
}

// Asker sends one check to one target and returns what came of it. It is called from
// many goroutines at once, never sends anything twice, and returns soon after ctx ends.
type Asker interface {
	Ask(ctx context.Context, target string, r *Request) Answer
}

// Progress is how far a run has come.
type Progress struct {
	Passed   time.Duration // of warm-up and measuring; negative: not begun
	Warming  bool
	Sent     int64 // what follows counts the warm-up too
	Answered int64
	Denied   int64
	Failed   int64
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
// a second from one other goroutine. An error means that nothing useful was measured.
func Run(ctx context.Context, o Options, a Asker, onProgress func(Progress)) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w, err := newWaiter()
	if err != nil {
		return nil, err
	}
	defer w.close()
	return run(ctx, o, a, onProgress, w.until)
}

// run is Run, in the time of until.
func run(ctx context.Context, o Options, a Asker, onProgress func(Progress), until func(context.Context, time.Time) error) (*Result, error) {
	p := &pacer{
		Options: o, asker: a, until: until, began: time.Now(),
		slots: make(chan struct{}, o.MaxInFlight), warm: o.requests(o.Warmup),
		tenants: newZipf(o.Tenants, o.Zipf), random: rand.New(rand.NewPCG(o.Seed, 0)),
	}
	for range o.Targets {
		p.tallies = append(p.tallies, newTally())
	}
	stop := p.reportProgress(onProgress)
	err := p.send(ctx)
	p.calls.Wait()
	stop()
	if err != nil {
		return nil, err
	}
	return p.result(), nil
}

// pacer is one run.
type pacer struct {
	Options
	asker   Asker
	until   func(context.Context, time.Time) error
	began   time.Time
	warm    int64 // requests of the warm-up
	tenants *zipf
	random  *rand.Rand
	slots   chan struct{} // one taken for each request without an answer
	calls   sync.WaitGroup
	tallies []*tally // by target

	// Of the goroutine that sends, for the result.
	due     int64         // requests whose time came, the warm-up left out
	sending time.Duration // how long it sent them

	answered, denied, failed, unsent, sent atomic.Int64 // for progress, the warm-up included
}

// send has every request leave when it is due. One that finds all slots taken, or
// whose run is over by the time that its turn comes, is counted and not sent.
func (p *pacer) send(ctx context.Context) error {
	all := p.warm + p.requests(p.For)
	end := p.began.Add(p.Options.due(all) + overrun)
	for n := range all {
		due := p.began.Add(p.Options.due(n))
		if err := p.until(ctx, due); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		t, measured := p.tallies[n%int64(len(p.tallies))], n >= p.warm
		r := p.draw()
		if measured {
			p.due++
			p.sending = max(time.Since(p.began.Add(p.Options.due(p.warm))), p.Options.due(n+1)-p.Options.due(p.warm))
		}
		switch {
		case time.Now().After(end):
			p.skip(t, measured, func(t *tally) { t.tooLate++ })
		case len(p.slots) == cap(p.slots): // nobody else fills them
			p.skip(t, measured, func(t *tally) { t.noSlot++ })
		default:
			p.slots <- struct{}{}
			p.sent.Add(1)
			p.calls.Go(func() { p.ask(ctx, p.Targets[n%int64(len(p.Targets))], &r, due, t, measured) })
		}
	}
	return nil
}

func (p *pacer) skip(t *tally, measured bool, count func(*tally)) {
	p.unsent.Add(1)
	if measured {
		t.update(count)
	}
}

func (p *pacer) draw() Request {
	return Request{
		Tenant: p.Prefix + strconv.Itoa(p.tenants.draw(p.random)+1),
		Policy: p.Policy, Cost: p.Costs.draw(p.random),
	}
}

// ask sends one request and counts its answer. The end of ctx does not cut it off:
// it was sent, so it was charged, and what became of it belongs into the result.
func (p *pacer) ask(ctx context.Context, target string, r *Request, due time.Time, t *tally, measured bool) {
	defer func() { <-p.slots }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Timeout)
	defer cancel()
	sent := time.Now()
	a := p.asker.Ask(ctx, target, r)
	done := time.Now()
	switch {
	case a.Fault != "":
		p.failed.Add(1)
	case a.Allowed:
		p.answered.Add(1)
	default:
		p.answered.Add(1)
		p.denied.Add(1)
	}
	if measured {
		t.update(func(t *tally) { t.add(&a, sent.Sub(due), done.Sub(sent)) })
	}
}

// reportProgress calls onProgress once a second until the func that it returns has returned.
func (p *pacer) reportProgress(onProgress func(Progress)) (stop func()) {
	if onProgress == nil {
		return func() {}
	}
	var reporter sync.WaitGroup
	over := make(chan struct{})
	reporter.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				onProgress(p.progress())
			}
		}
	})
	return func() {
		close(over)
		reporter.Wait()
	}
}

func (p *pacer) progress() Progress {
	passed := time.Since(p.began)
	return Progress{
		Passed: passed, Warming: passed < p.Warmup,
		Sent: p.sent.Load(), Answered: p.answered.Load(), Denied: p.denied.Load(), Failed: p.failed.Load(),
		Unsent: p.unsent.Load(), InFlight: int64(len(p.slots)),
	}
}
