package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

const (
	// resetAhead is how far a cut lies ahead of the store's clock as we know it, so that what
	// was counted until now is before it. resetSettle passes before the store deletes: until
	// then siblings know the cut, and take what is missing for deleted, not for lost.
	resetAhead  = 100 * time.Millisecond
	resetSettle = 250 * time.Millisecond
	// resetRepeat is how often regions that do not answer are asked again, resetFor until
	// when, and resetWithin how long a region may take.
	resetRepeat = time.Second
	resetFor    = httpapi.ResetTimeout - 500*time.Millisecond
	resetWithin = 3 * time.Second
	// resetsAtOnce is how many resets for others run at once, and resetsKept how many answers
	// are kept for those who ask again.
	resetsAtOnce = 4
	resetsKept   = 1024
)

// resets deletes the usage of tenants in all regions.
//
//	DELETE ─▶ everywhere ── Reset.To ─▶ one process of each other region
//	              │                         │ both: announce a cut ─▶ all processes; settle; delete;
//	              ▼                         ▼       cut deleted ─▶ all processes
//	         own region                 its region
//
// What a region counted before its cut counts nowhere from then on, whoever sends it again. A
// region that does not answer gets a cut at its clock by us, so that its old counters do not
// come back with it.
type resets struct {
	r      *replication
	reset  func(ctx context.Context, tenant string, upTo int64) error // of our region
	orders chan *wire.Reset

	mu    sync.Mutex
	calls map[uint64]*resetCall
	// answers has the last one to each order of other regions; nil while it is carried out.
	answers map[uint64]*wire.Reset
}

// resetCall is one DELETE; resets.mu guards it.
type resetCall struct {
	results map[string]httpapi.ResetResult // of other regions
	changed chan struct{}                  // holds at most one
}

func newResets(r *replication, reset func(ctx context.Context, tenant string, upTo int64) error) *resets {
	return &resets{
		r: r, reset: reset, orders: make(chan *wire.Reset, resetsAtOnce),
		calls: map[uint64]*resetCall{}, answers: map[uint64]*wire.Reset{},
	}
}

// run carries out what other regions ask for.
func (s *resets) run(ctx context.Context) error {
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

// received is called by the mesh and returns at once.
func (s *resets) received(m *wire.Reset) {
	s.r.ceilings.Ledger().Supersede(m.Tenant, m.Cuts)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[m.ID]; c != nil && m.From.Region != s.r.self.Region {
		c.note(m)
	}
	if !slices.Contains(m.To, s.r.self) {
		return
	}
	switch answer, known := s.answers[m.ID]; {
	case known && answer != nil:
		s.r.mesh.SendReset(*answer)
	case !known:
		select {
		case s.orders <- m:
			for id := range s.answers {
				if len(s.answers) < resetsKept {
					break
				}
				delete(s.answers, id)
			}
			s.answers[m.ID] = nil
		default: // it asks again
		}
	}
}

// note takes in what a region says of its part.
func (c *resetCall) note(m *wire.Reset) {
	result := c.results[m.From.Region]
	for _, cut := range m.Cuts {
		switch {
		case cut.Region != m.From.Region:
		case cut.State == wire.CutDeleted:
			result = httpapi.ResetCleared
		case result == "":
			result = httpapi.ResetFailed // until it says that it is done
		}
	}
	c.results[m.From.Region] = result
	signal.Send(c.changed)
}

func (s *resets) carryOut(ctx context.Context, o *wire.Reset) {
	ctx, cancel := context.WithTimeout(ctx, resetWithin)
	defer cancel()
	answer, err := s.here(ctx, o.ID, o.Tenant)
	if err != nil {
		s.r.log.Warn("usage was not reset", "tenant", o.Tenant, "asked_by", o.From.Region, "error", err)
	} else {
		s.r.log.Info("usage was reset", "tenant", o.Tenant, "asked_by", o.From.Region)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers[o.ID] = &answer; err != nil {
		delete(s.answers, o.ID) // asked again, it tries again
	}
}

// here deletes a tenant's usage in our region and returns what it has published of that.
func (s *resets) here(ctx context.Context, id uint64, tenant string) (wire.Reset, error) {
	cut := wire.Cut{Region: s.r.self.Region, UpTo: s.r.timeUS() + resetAhead.Microseconds()}
	tell := func() wire.Reset {
		m := wire.Reset{ID: id, Tenant: tenant, Cuts: []wire.Cut{cut}}
		s.r.ceilings.Ledger().Supersede(tenant, m.Cuts)
		s.r.mesh.SendReset(m)
		return m
	}
	m := tell()
	select {
	case <-ctx.Done():
		return m, context.Cause(ctx)
	case <-time.After(resetSettle):
	}
	if err := s.reset(ctx, tenant, cut.UpTo); err != nil {
		return m, err
	}
	cut.State = wire.CutDeleted
	return tell(), nil
}

// everywhere deletes a tenant's usage in all regions and returns what became of each, in the
// order of the topology. On an error our own has not done so.
func (s *resets) everywhere(ctx context.Context, tenant string) ([]httpapi.RegionReset, error) {
	ctx, cancel := context.WithTimeout(ctx, resetFor)
	defer cancel()
	id := 2 + rand.Uint64N(1<<63) // not 1, which is nobody's call
	c := &resetCall{results: map[string]httpapi.ResetResult{}, changed: make(chan struct{}, 1)}
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
		_, err := s.here(ctx, id, tenant)
		own <- err
	}()
	s.awaitOthers(ctx, id, tenant, c)
	if err := <-own; err != nil {
		return nil, fmt.Errorf("reset usage: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []httpapi.RegionReset
	for _, name := range regionNames(s.r.topology()) {
		result := c.results[name]
		switch {
		case name == s.r.self.Region:
			result = httpapi.ResetCleared
		case result == "":
			result = httpapi.ResetUnreached
			s.cutAt(name, tenant)
		}
		all = append(all, httpapi.RegionReset{Region: name, Result: result})
	}
	for name, cuts := range s.r.ceilings.Ledger().Resets() {
		if name == tenant { // once more, for whoever missed one
			s.r.mesh.SendReset(wire.Reset{ID: id, Tenant: tenant, Cuts: cuts})
		}
	}
	return all, nil
}

// cutAt supersedes what a region that was not reached has published: by its clock as far as we
// know it, but not ahead of ours, since a forged message may have moved it.
func (s *resets) cutAt(name, tenant string) {
	l := s.r.ceilings.Ledger()
	if us, known := l.ClockUS(name, s.r.now()); known {
		l.Supersede(tenant, []wire.Cut{{Region: name, UpTo: min(us, s.r.timeUS())}})
	}
}

// awaitOthers asks a process of each other region, another one each time, until all have done
// their part or ctx ends.
func (s *resets) awaitOthers(ctx context.Context, id uint64, tenant string, c *resetCall) {
	again := time.NewTicker(resetRepeat)
	defer again.Stop()
	for attempt, ask := 0, true; ; {
		var to []quota.Process
		left := 0
		s.mu.Lock()
		for _, name := range regionNames(s.r.topology()) {
			if name == s.r.self.Region || c.results[name] == httpapi.ResetCleared {
				continue
			}
			left++
			if all := s.live(name); len(all) > 0 {
				to = append(to, all[attempt%len(all)])
			}
		}
		s.mu.Unlock()
		if left == 0 {
			return
		}
		if ask && len(to) > 0 {
			s.r.mesh.SendReset(wire.Reset{ID: id, Tenant: tenant, To: to})
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

// live are the processes of a region that are received.
func (s *resets) live(name string) []quota.Process {
	return slices.DeleteFunc(s.r.received(), func(p quota.Process) bool { return p.Region != name })
}

// returned publishes that our store has again what was deleted.
func (s *resets) returned(tenant string) {
	s.r.log.Warn("usage that was reset is in the store again, since the store went back: reset it again", "tenant", tenant)
	for name, cuts := range s.r.ceilings.Ledger().Resets() {
		if name == tenant {
			s.r.mesh.SendReset(wire.Reset{ID: 1, Tenant: tenant, Cuts: cuts})
		}
	}
}
