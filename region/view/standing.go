package view

import (
	"time"

	"github.com/regiond/regiond/quota"
)

// standing is what we remember of one peer region, and its way in and out of the
// candidate:
//
//	           fresh                                 anything but fresh
//	acquaint ─────────▶ in ──────────────────────────────────┐
//	   ▲                ▲                                    ▼
//	   │                │ good for wait, and GoodBeats      out
//	   │                └────────────────── waiting ◀──fresh──┤
//	   └── left as planned, after a minute in good standing ──┘
//
// wait is FirstWait after the first exclusion, and doubles up to LongestWait with
// each that follows within GoodStanding of the return. To be good means to be heard,
// up to date, and to hear us; the digest may come while the wait runs.
type standing struct {
	region string
	state  State
	since  time.Duration // when state began
	in     bool          // counted on: part of the candidate
	// cause is why it is not counted on. It outlives the state: a region that waits is
	// still out for the reason that put it out.
	cause   quota.Reason
	causeAt time.Duration
	current bool // its figures hold, whether or not it is counted on

	good      bool // at the last look
	goodSince time.Duration
	entered   time.Duration // when it was last let in
	wait      time.Duration // how long it must be good to be let in; 0: not at all
}

// step moves the region on by one look at it.
func (s *standing) step(now time.Duration, f finding) {
	if f.hearing && !s.good {
		s.goodSince = now
	}
	s.good, s.current = f.hearing, f.current
	switch {
	case f.state != StateFresh:
		s.exclude(now, f.state)
	case s.in:
	case s.remaining(now) == 0 && (s.wait == 0 || f.beats >= GoodBeats):
		s.in, s.entered, s.cause = true, now, quota.ReasonNone
		s.become(now, StateFresh)
	default:
		s.become(now, StateWaiting)
	}
}

// remaining is how much of the wait is left if the region stays good.
func (s *standing) remaining(now time.Duration) time.Duration {
	if s.in {
		return 0
	}
	if !s.good {
		return s.wait
	}
	return max(0, s.wait-(now-s.goodSince))
}

// exclude takes the region out, or keeps it out, for a state that is not fresh.
func (s *standing) exclude(now time.Duration, state State) {
	was := s.in
	if was {
		s.leave(now, state == StateLeft)
	}
	if s.overrides(now, state, was) {
		s.cause, s.causeAt = state.reason(), now
	}
	s.become(now, state)
}

// overrides reports whether state explains better why the region is out than the
// cause that is told, which it has passed on its way back.
func (s *standing) overrides(now time.Duration, state State, was bool) bool {
	switch {
	case s.cause == quota.ReasonProcessPaused && now-s.causeAt < JoiningFor:
		// After we stood still every peer looks silent until it had time for a beat.
		return false
	case was:
		return true
	case state == StateJoining:
		return false
	case state == StateOneWay && s.cause == quota.ReasonPeerSilent && s.wait > 0:
		// A region that was excluded and is heard again needs a moment to acknowledge us.
		return s.state == StateOneWay && now-s.since > UnheardAfter
	}
	return true
}

// leave ends a time of being counted on and sets the wait for the next.
func (s *standing) leave(now time.Duration, planned bool) {
	s.in = false
	stood := now - s.entered
	switch {
	case stood >= GoodStanding && planned:
		s.wait = 0
	case stood >= GoodStanding:
		s.wait = FirstWait
	default:
		s.wait = min(max(2*s.wait, FirstWait), LongestWait)
	}
}

// distrust forgets that the region was ever good: this process stood still, and what
// it knows is as old as that.
func (s *standing) distrust(now time.Duration) {
	if s.in {
		s.leave(now, false)
	}
	s.good = false
	s.wait = max(s.wait, FirstWait)
	s.cause, s.causeAt = quota.ReasonProcessPaused, now
}

func (s *standing) become(now time.Duration, state State) {
	if s.state != state {
		s.state, s.since = state, now
	}
}
