package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region/members"
)

// epoch is this process's side of the region's epoch: whether what its store holds is
// whole, and its clock even. Belongs to State.mu.
//
//	store ── field epoch of the hash ─▶ known ── confirmed ─▶ State.Store
//	Lose, a step of the clock, the first process ─▶ renew ─▶ region.lua: another epoch
type epoch struct {
	store     loan.Store    // as read
	top       uint32        // the largest that was ever in force, as far as known
	first     uint32        // that began the hash; 0: not known
	confirmed bool          // a process that has it was alive before us, or we made it
	since     time.Duration // the first turn; 0: there was none
	renew     renewal
	cause     atomic.Int32 // a Cause; read without State.mu
}

// mostSeen is the largest epoch that is taken from a peer: many are left above it.
const mostSeen = 1<<32 - 1<<24

// renewal is what the next turn does with the epoch.
type renewal int

const (
	keep    renewal = iota
	another         // the clock was not watched, or has stepped back
	reopen          // an operator ends what a loss costs
	stepped         // the clock stepped forward: what was counted in windows has aged early
	lost            // data were lost, or may be: keys have expired early
)

// Cause is why data that were counted count no more.
type Cause int32

// The causes.
const (
	Unknown Cause = iota // this process did not notice it itself
	Lost                 // the store lost data, or was rolled back
	Stepped              // its clock stepped forward
)

// Cause is that of the last loss in Store.
func (s *State) Cause() Cause { return Cause(s.epoch.cause.Load()) }

// keysOutlast is the step of a clock forward from which on keys of periods of a calendar may have expired, which the clock may yet show
// again: less than the shortest period, by which such a key outlasts its own.
const keysOutlast = 55 * time.Minute

// due is the renewal after a loss of data, and a step of a clock. It notes which of them is the cause.
func (e *epoch) due(loss bool, step time.Duration) renewal {
	switch {
	case loss:
		e.cause.Store(int32(Lost))
		return lost
	case step > clock.Unseen:
		e.cause.Store(int32(Stepped))
		if step >= keysOutlast {
			return lost
		}
		return stepped
	case step < -clock.Unseen:
		return another
	}
	return keep
}

// Store is the epoch of the region's store, and the TIME of its last known loss. Its epoch is 0
// while nothing of it is known: before the first turn; while it is not known whether a
// sibling watched the store before this process started, GoneAfter at most; from a loss
// or a step of the clock until a turn has renewed the epoch; while processes are asked about
// another server, 2 s at most; and, with Drifting, while the clock drifts by more than 2 %.
func (s *State) Store() loan.Store {
	of := *s.inForce.Load()
	if s.missing.Load() > s.excused.Load() {
		return loan.Store{}
	}
	return of
}

// Lose reports that the region's store has lost data that it had at a TIME: a new epoch begins now, unless one has begun as
// lost since. Then all that was there before has aged before anything is open again, so that one loss makes one epoch,
// however late each of many partitions finds that it was hit.
func (s *State) Lose(thereUS int64) {
	if s.o.Eval == nil || thereUS <= s.excused.Load() { // what is in memory ends with the process
		return
	}
	for had := s.missing.Load(); thereUS > had && !s.missing.CompareAndSwap(had, thereUS); had = s.missing.Load() {
	}
	signal.Send(s.turns)
}

// withhold takes the epoch back that is to be renewed, and reports whether one is.
func (s *State) withhold() bool {
	if s.epoch.renew == keep {
		return false
	}
	s.force(loan.Store{})
	return true
}

// force puts an epoch in force, and has the clocks of all servers watched under it.
func (s *State) force(of loan.Store) {
	for _, h := range s.hashes() {
		h.clock.Watch(of.Epoch)
	}
	s.inForce.Store(&of)
}

// Seen reports that a peer has had messages of an epoch of ours. If the store has an earlier one it was rolled back, and if it has
// none so early, and knows of no loss of data, it was emptied while no process watched it.
func (s *State) Seen(number uint32) {
	if s.o.Eval == nil || number > mostSeen {
		return
	}
	excused := s.excused.Load() // before first, as it is written after that
	if number > 0 && number < s.first.Load() {
		s.Lose(excused + 1) // no step of the clock answers for it
	}
	for had := s.seen.Load(); number > had && !s.seen.CompareAndSwap(had, number); had = s.seen.Load() {
	}
	if of := s.inForce.Load(); of.Epoch != 0 && number > of.Epoch {
		signal.Send(s.turns)
	}
}

// args are what a turn tells the script: the epoch as known, the largest that has been, and whether another is due.
// missing is that of State, and seen the largest that peers have seen.
func (e *epoch) args(missing int64, seen uint32) (known, top, renew string) {
	if missing > e.excused() {
		e.renew = lost
		e.cause.Store(int32(Lost))
	}
	if e.store.Epoch != 0 {
		known = strconv.FormatUint(uint64(e.store.Epoch), 10)
	}
	e.top = max(e.top, seen)
	return known, strconv.FormatUint(uint64(e.top), 10), []string{keep: "", another: "another", reopen: "reopen", stepped: "stepped", lost: "lost"}[e.renew]
}

// read takes in the epoch that a turn has found, and what the other processes of the region show. unwatched is that of State, and
// sure is false while the next sample of the clock may show it better. Then renew says what is still to be done.
func (e *epoch) read(r *reply, at time.Duration, others []members.Store, sure bool, unwatched func() renewal) error {
	var now loan.Store
	var began uint32
	n, _ := fmt.Sscan(r.epoch, &now.Epoch, &now.Lost, &now.Since, &began, &now.Unwatched, &now.DataLost, &now.LostIn)
	if n < 7 || now.Epoch == 0 {
		return fmt.Errorf("field epoch of the key %s is %.40q; delete it", Key, r.epoch)
	}
	e.first = began
	first, noticed := e.since == 0, e.renew
	if e.renew == reopen { // that is for the loss known, so it is not tried again
		e.renew = keep
	}
	noted := now.LostIn > e.store.LostIn // by another process, or the script: a loss of data since the turn before
	if now.Epoch != e.store.Epoch {
		e.confirmed = !first || r.began && sure // since our first turn we watch the clock
		if (r.began || !first) && (noted || e.renew < lost && (r.began || e.renew == another || now.Lost != e.store.Lost)) {
			e.renew = keep
		}
	}
	if first {
		e.since = max(at, 1)
	}
	back := now.Epoch < e.top
	if now.Lost != e.store.Lost && noticed < stepped {
		e.cause.Store(int32(Unknown))
	}
	found := e.due(r.lost || back, r.step)
	if noted {
		found = e.due(back, r.step)
	}
	e.store, e.top = now, max(e.top, now.Epoch)
	switch e.renew = max(e.renew, found); {
	case e.renew != keep || e.confirmed && !first:
	case e.confirmed: // another server took over
		e.renew = unwatched()
	case e.watched(others):
		e.confirmed = true
	case sure && !recent(r.us, others) || at-e.since > GoneAfter:
		e.renew = max(another, unwatched())
	}
	return nil
}

// inForce is the epoch, zero while it is not confirmed or is to be renewed.
func (e *epoch) inForce() loan.Store {
	if !e.confirmed || e.renew != keep {
		return loan.Store{}
	}
	of := e.store
	of.Lost = max(0, of.Lost)
	return of
}

// excused is the TIME up to which what is lost is known, or an operator has answered for it.
func (e *epoch) excused() int64 { return max(e.store.Lost, -e.store.Lost) }

// ErrOpen says that there is nothing to reopen.
var ErrOpen = errors.New("no loss of data has closed the share of this region")

// Reopen ends what the last known loss of data costs: the region has its own share again, so that what was used of it before
// may be admitted once more. A loss that is noticed later closes it anew.
func (s *State) Reopen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.epoch.inForce()
	if of.Lost == 0 {
		return ErrOpen
	}
	s.epoch.renew = reopen
	if err := s.take(ctx); errors.Is(err, ErrAway) {
		if s.epoch.renew == reopen { // or a later turn would, when nobody expects it
			s.epoch.renew = keep
		}
		return err
	}
	if s.epoch.store.Lost > 0 {
		return errors.New("the region has another epoch since, or asks its processes about another redis server; try again")
	}
	s.o.Logger.Warn("an operator has reopened the region: what was used of its share before may be admitted once more",
		"lost", time.UnixMicro(of.Lost).UTC(), "epoch", s.epoch.store.Epoch)
	return nil
}

// watched reports whether another process has the epoch in force and was seen alive.
func (e *epoch) watched(others []members.Store) bool {
	return slices.ContainsFunc(others, func(o members.Store) bool {
		return o.Moved && strings.HasSuffix(o.Entry, fmt.Sprintf(" %d", e.store.Epoch))
	})
}

// recent reports whether any process may be alive: its entry is not older than GoneAfter.
func recent(timeUS int64, others []members.Store) bool {
	return slices.ContainsFunc(others, func(o members.Store) bool {
		age := time.Duration(timeUS-entryUS(o.Entry)) * time.Microsecond
		return age.Abs() <= GoneAfter
	})
}
