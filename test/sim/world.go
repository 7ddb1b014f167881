package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// World is one seeded run: regions, what stands between them, and the virtual time
// in which all of it happens. Nothing in it starts a goroutine, waits, or looks at
// any clock but its own, so the same calls give the same world. It is not safe for
// concurrent use; many worlds may run beside each other.
//
//	region: store, clock       process: limiter, ceilings, ledger, mesh, manager
//	  a ── process, process …     │ link: delay, loss, cut …
//	  b ── process …              ▼
//	  c ── process …           bus, gossip        judge: what is true, what must hold
type World struct {
	heedless   bool // that loans are lost is noticed by nobody
	o          Options
	now        time.Duration
	dice       *rand.Rand
	queue      queue
	regions    []*simRegion
	processes  []*process // every one that was started
	started    int
	links      [][]link
	gossip     gossipModel
	key        wire.Key
	seal       *limiter.Seal // of all regions
	log        *slog.Logger
	trace      trace
	judge      *judge      // nil unless Options.Judged
	perfect    *perfectLog // nil unless Options.Perfect
	bounds     bounds
	overridden bool        // tenants may have overrides
	bound      *boundJudge // nil if no limit has a bound
	hard       Hard
	reloaded   bool // some region was given another topology
	stats      Stats
}

// Stats counts what has happened in a World.
type Stats struct {
	Events    int64 // messages, wakes and calls
	Checks    int64
	Admitted  int64 // units
	Published int64 // messages that the bus took
	Lost      int64 // ways of a message to one process that ended nowhere
	Summed    int64 // admissions at which the sum over all regions was accounted for
	Converged int64 // times that all were seen to hold the same
	Loans     int64 // messages about loans
	Grants    int64
	Settled   int64 // units of reservations that were held until they were settled
	Told      int64 // units of those that were not, as the caller was told
}

// Answer is what a Check got.
type Answer struct {
	// Answered is false when no process of the region could: all are frozen or gone.
	Answered bool
	// Decision is the limiter's own.
	Decision quota.Decision
}

// New returns a world at time 0, in which every process has just started.
func New(o Options) *World {
	w := &World{
		o: o, dice: rand.New(rand.NewPCG(o.Seed, 0x5e6)), key: wire.NewKey(nil, "sim"),
		seal: limiter.NewSeal(), log: slog.New(slog.DiscardHandler), trace: newTrace(),
	}
	w.gossip = gossipModel{w: w, cuts: make([][]bool, len(o.Regions))}
	top := o.topology()
	w.bounds, w.overridden = bounds{w: w, now: boundsOf(top)}, o.Overridden
	if slices.ContainsFunc(o.Policies, func(p quota.Policy) bool { return p.Limits[0].MaxOvershoot != 0 }) {
		w.bound = newBoundJudge(w)
	}
	for i := range o.Regions {
		r := &o.Regions[i]
		s := &simRegion{w: w, place: i, name: r.Name, skew: r.Skew, pace: r.PacePPM, topology: top}
		s.store.begin(s)
		w.regions = append(w.regions, s)
		w.gossip.cuts[i] = make([]bool, len(o.Regions))
		w.links = append(w.links, make([]link, len(o.Regions)))
		for j := range o.Regions {
			w.links[i][j] = link{delay: o.delay(i, j), jitter: o.Jitter}
		}
	}
	if o.Judged {
		w.judge = newJudge(w)
	}
	if o.Perfect {
		w.perfect = newPerfectLog(len(o.Regions))
	}
	for i, s := range w.regions {
		if o.Regions[i].Absent {
			continue
		}
		for range max(1, o.Regions[i].Processes) {
			s.start(s.nextName())
		}
	}
	return w
}

// nextName names the region's next process.
func (s *simRegion) nextName() string {
	s.started++
	return fmt.Sprintf("p%d", s.started)
}

// Now is virtual time.
func (w *World) Now() time.Duration { return w.now }

// Stats is what has happened so far.
func (w *World) Stats() Stats { return w.stats }

// Hash stands for everything that has happened so far: every event in its order and
// every answer.
func (w *World) Hash() uint64 { return w.trace.sum }

// At has f called at a moment that is not past.
func (w *World) At(t time.Duration, f func()) {
	w.queue.add(event{at: max(t, w.now), kind: kindCall, do: f})
}

// RunUntil has everything happen up to a moment, and stops there.
func (w *World) RunUntil(t time.Duration) {
	for e := w.queue.take(t); e != nil; e = w.queue.take(t) {
		w.now = e.at
		w.step(e)
	}
	w.now = max(w.now, t)
}

func (w *World) step(e *event) {
	w.stats.Events++
	switch e.kind {
	case kindCall:
		e.do()
	case kindMessage:
		w.trace.message(w.now, e.msg, e.p)
		e.p.receive(e.msg)
	case kindWake:
		if e.p.woken == e.at {
			e.p.woken = never
		}
		e.p.settle()
	}
}

// Check asks one of a region's processes now whether a tenant may spend cost, and the
// world records the decision.
func (w *World) Check(region int, tenant string, cost int64) Answer {
	s := w.regions[region]
	p := s.next()
	if p == nil {
		return Answer{}
	}
	w.stats.Checks++
	if w.judge != nil {
		w.judge.asks(p, tenant)
	}
	d, err := p.limiter.Check(context.Background(), quota.Request{Tenant: tenant, Cost: cost})
	if w.tooCostly(err) {
		return Answer{}
	}
	if err != nil {
		panic(fmt.Sprintf("sim: a check of %s at cost %d: %v", tenant, cost, err)) // the world's own mistake
	}
	w.trace.answer(w.now, p, &d)
	if d.Allowed {
		w.stats.Admitted += cost
	}
	if w.judge != nil {
		w.judge.answered(p, tenant, cost, &d)
	}
	if w.bound != nil {
		if d.Allowed {
			w.bound.admitted(p, tenant, cost)
		}
		p.lending.folly(tenant)
	}
	p.settle()
	return Answer{Answered: true, Decision: d}
}

// next is the process whose turn it is to be asked; nil when none can.
func (s *simRegion) next() *process {
	for range s.processes {
		s.turn++
		if p := s.processes[s.turn%len(s.processes)]; !p.frozen {
			return p
		}
	}
	return nil
}

// living are the processes that run or are frozen.
func (w *World) living() []*process {
	var all []*process
	for _, s := range w.regions {
		all = append(all, s.processes...)
	}
	return all
}

// well reports whether nothing is wrong at present with bus, stores and processes.
func (w *World) well() bool {
	for i := range w.links {
		for j := range w.links[i] {
			if l := &w.links[i][j]; l.cut || l.loss > 0 || l.twice > 0 || l.late > 0 {
				return false
			}
		}
	}
	for _, s := range w.regions {
		if s.store.away || s.seen != s.stepped {
			return false
		}
	}
	return !slices.ContainsFunc(w.living(), func(p *process) bool { return p.frozen || p.bus.down })
}

// StoreUS is what the clock of a region's store shows now, µs since the generation: what
// usage counters are numbered by there.
func (w *World) StoreUS(region int) int64 { return w.regions[region].nowUS() }
