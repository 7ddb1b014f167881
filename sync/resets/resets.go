// Package resets deletes the usage of a tenant in all regions, and keeps it deleted: what a region counted before
// counts nowhere from then on, whoever sends it again.
package resets

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

const (
	// resetAhead is how far a cut lies ahead of the store's clock as we know it, so that what
	// was counted until now is before it. resetSettle passes before the store deletes: until
	// then siblings know the cut, and take what is missing for deleted, not for lost.
	resetAhead  = 100 * time.Millisecond
	resetSettle = 250 * time.Millisecond
	// resetRepeat is how often regions that do not answer are asked again, and resetWithin how
	// long a region may take.
	resetRepeat = time.Second
	resetWithin = 3 * time.Second
	// resetsAtOnce is how many resets for others run at once, and resetsKept how many answers
	// are kept for those who ask again.
	resetsAtOnce = 4
	resetsKept   = 1024
)

// Options are what New needs; all are required.
type Options struct {
	Self   quota.Process
	Ledger *ledger.Ledger
	// Send publishes a message, as sync.Mesh.SendReset.
	Send func(m wire.Reset)
	// Delete deletes what our region has of a tenant, usage counters of generations up to upTo included.
	Delete func(ctx context.Context, tenant string, upTo int64) error
	// BurntMS is quota.RegionReset's of our region.
	BurntMS func() int64
	// Regions lists those of the topology in force, Live the other processes that are received.
	Regions func() []string
	Live    func() []quota.Process
	// Now is this process's monotonic clock, and TimeUS that of its region's store.
	Now    func() time.Duration
	TimeUS func() int64
	// Timeout is how long other regions are waited for.
	Timeout time.Duration
	Logger  *slog.Logger
}

// Resets deletes the usage of tenants in all regions.
//
//	DELETE ─▶ Everywhere ── Reset.To ─▶ one process of each other region
//	              │                         │ both: announce a cut ─▶ all processes; settle; delete;
//	              ▼                         ▼       cut deleted ─▶ all processes
//	         own region                 its region
//
// What a region counted before its cut counts nowhere from then on, whoever sends it again. A
// region that does not answer gets a cut at its clock by us, so that its old counters do not
// come back with it.
type Resets struct {
	o      Options
	orders chan *wire.Reset

	mu    sync.Mutex
	calls map[uint64]*resetCall
	// answers has the last one to each order of other regions; nil while it is carried out.
	answers map[uint64]*wire.Reset
	taken   []uint64 // orders, the oldest first: those that failed may be in it again
}

// resetCall is one DELETE; Resets.mu guards it.
type resetCall struct {
	results map[string]quota.RegionReset // by region
	changed chan struct{}                // holds at most one
}

// New returns Resets; Run makes them serve other regions.
func New(o Options) *Resets {
	return &Resets{
		o: o, orders: make(chan *wire.Reset, resetsAtOnce),
		calls: map[uint64]*resetCall{}, answers: map[uint64]*wire.Reset{},
	}
}

// Run carries out what other regions ask for.
func (s *Resets) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range resetsAtOnce {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case o := <-s.orders:
					s.carryOut(ctx, o)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// Receive is called by the mesh and returns at once.
func (s *Resets) Receive(m *wire.Reset) {
	s.o.Ledger.Supersede(m.Tenant, m.Cuts)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[m.ID]; c != nil && m.From.Region != s.o.Self.Region {
		c.note(m)
	}
	if !slices.Contains(m.To, s.o.Self) {
		return
	}
	switch answer, known := s.answers[m.ID]; {
	case known && answer != nil:
		s.o.Send(*answer)
	case !known:
		select {
		case s.orders <- m:
			if len(s.taken) == resetsKept { // the oldest was carried out long ago
				delete(s.answers, s.taken[0])
				s.taken = s.taken[1:]
			}
			s.answers[m.ID], s.taken = nil, append(s.taken, m.ID)
		default: // it asks again
		}
	}
}

// note takes in what a region says of its part.
func (c *resetCall) note(m *wire.Reset) {
	r := c.results[m.From.Region]
	for _, cut := range m.Cuts {
		switch {
		case cut.Region != m.From.Region:
		case cut.State == wire.CutDeleted:
			r.Result, r.BurntMS = quota.ResetCleared, m.BurntMS
		case r.Result == "":
			r.Result = quota.ResetFailed // until it says that it is done
		}
	}
	c.results[m.From.Region] = r
	signal.Send(c.changed)
}

func (s *Resets) carryOut(ctx context.Context, o *wire.Reset) {
	ctx, cancel := context.WithTimeout(ctx, resetWithin)
	defer cancel()
	answer, err := s.here(ctx, o.ID, o.Tenant)
	if err != nil {
		s.o.Logger.Warn("usage was not reset", "tenant", o.Tenant, "asked_by", o.From.Region, "error", err)
	} else {
		s.o.Logger.Info("usage was reset", "tenant", o.Tenant, "asked_by", o.From.Region)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers[o.ID] = &answer; err != nil {
		delete(s.answers, o.ID) // asked again, it tries again
	}
}

// here deletes a tenant's usage in our region and returns what it has published of that.
func (s *Resets) here(ctx context.Context, id uint64, tenant string) (wire.Reset, error) {
	cut := wire.Cut{Region: s.o.Self.Region, UpTo: s.o.TimeUS() + resetAhead.Microseconds()}
	tell := func() wire.Reset {
		m := wire.Reset{ID: id, Tenant: tenant, Cuts: []wire.Cut{cut}, BurntMS: s.o.BurntMS()}
		s.o.Ledger.Supersede(tenant, m.Cuts)
		s.o.Send(m)
		return m
	}
	m := tell()
	select {
	case <-ctx.Done():
		return m, context.Cause(ctx)
	case <-time.After(resetSettle):
	}
	if err := s.o.Delete(ctx, tenant, cut.UpTo); err != nil {
		return m, err
	}
	cut.State = wire.CutDeleted
	return tell(), nil
}

// Everywhere deletes a tenant's usage in all regions and returns what became of each, in the
// order of the topology. On an error our own has not done so.
func (s *Resets) Everywhere(ctx context.Context, tenant string) ([]quota.RegionReset, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	id := 2 + rand.Uint64N(1<<63) // not 1, which is nobody's call
	c := &resetCall{results: map[string]quota.RegionReset{}, changed: make(chan struct{}, 1)}
	s.mu.Lock()
	s.calls[id] = c
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, id)
	}()
	own := make(chan error, 1)
	go func() {
		m, err := s.here(ctx, id, tenant)
		m.From = s.o.Self
		s.mu.Lock()
		c.note(&m)
		s.mu.Unlock()
		own <- err
	}()
	s.awaitOthers(ctx, id, tenant, c)
	if err := <-own; err != nil {
		return nil, fmt.Errorf("reset usage: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []quota.RegionReset
	for _, name := range s.o.Regions() {
		r := c.results[name]
		if r.Region = name; r.Result == "" {
			r.Result = quota.ResetUnreached
			// By its clock as far as we know it, but not ahead of ours, since a forged message may have moved it.
			if us, known := s.o.Ledger.ClockUS(name, s.o.Now()); known {
				s.o.Ledger.Supersede(tenant, []wire.Cut{{Region: name, UpTo: min(us, s.o.TimeUS())}})
			}
		}
		all = append(all, r)
	}
	s.repeat(id, tenant) // for whoever missed one
	return all, nil
}

// awaitOthers asks a process of each other region, another one each time, until all have done
// their part or ctx ends.
func (s *Resets) awaitOthers(ctx context.Context, id uint64, tenant string, c *resetCall) {
	again := time.NewTicker(resetRepeat)
	defer again.Stop()
	for attempt, ask := 0, true; ; {
		left, to := s.left(c, attempt)
		if left == 0 {
			return
		}
		if ask && len(to) > 0 {
			s.o.Send(wire.Reset{ID: id, Tenant: tenant, To: to})
			attempt++
		}
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			ask = false
		case <-again.C:
			ask = true
		}
	}
}

// left is how many regions have not done their part, and the process of each to ask next.
func (s *Resets) left(c *resetCall, attempt int) (left int, to []quota.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.o.Regions() {
		if name == s.o.Self.Region || c.results[name].Result == quota.ResetCleared {
			continue
		}
		left++
		all := slices.DeleteFunc(s.o.Live(), func(p quota.Process) bool { return p.Region != name })
		if len(all) > 0 {
			to = append(to, all[attempt%len(all)])
		}
	}
	return left, to
}

// Returned publishes that our store has again what was deleted.
func (s *Resets) Returned(tenant string) {
	s.o.Logger.Warn("usage that was reset is in the store again, since the store went back: reset it again", "tenant", tenant)
	s.repeat(1, tenant)
}

func (s *Resets) repeat(id uint64, tenant string) {
	if cuts := s.o.Ledger.Resets()[tenant]; cuts != nil {
		s.o.Send(wire.Reset{ID: id, Tenant: tenant, Cuts: cuts})
	}
}
