package members

import (
	"time"

	"github.com/regiond/regiond/quota"
)

const (
	// SilentAfter is the time without usage or a heartbeat after which a process counts as silent: one
	// heartbeat may be lost and the next be 300 ms late. Other messages, as of loans, do not count.
	SilentAfter = 1300 * time.Millisecond
	// OneWayAfter is how old the newest message of ours that a peer acknowledges may
	// be. At its worst the age is 500 ms (our message left just after the one before)
	// + one way + 500 ms (it came just after the peer's heartbeat) + one way back,
	// until the next heartbeat: 1 s + 300 ms of round trip. A heartbeat lost, ours or
	// theirs, makes that 1.8 s, so 200 ms remain for late timers. A cut from us to
	// them is known here within 2.05 s, and usually sooner, because the peer
	// advertises that it misses us.
	OneWayAfter = 2 * time.Second
	// GoodHeartbeats is how many heartbeats in a row must have come from a process that
	// has not acknowledged us, to say that it does not, and from an excluded region, to
	// count on it again.
	GoodHeartbeats = 3
	// BehindAfter is the age of a process's oldest unsent change from which on its usage is
	// no better than that of a silent one.
	BehindAfter = time.Second
)

// State is the state of a region or process as seen by this one. Only StateFresh is
// counted on. From there to StateLeft they are ordered by severity.
type State uint8

const (
	// StateNeverSeen: none of its processes was ever known here.
	StateNeverSeen State = iota
	// StateFresh: all of its live processes are received, acknowledge us and have sent a
	// snapshot, and its wait is over. Any of these failing ends it.
	StateFresh
	// StateWaiting: it is as good as fresh again, but was excluded lately.
	StateWaiting
	// StateJoining: it is received, but a snapshot or its first acknowledgement is missing.
	StateJoining
	// StateOneWay: it is received, and for OneWayAfter, or GoodHeartbeats at first, has not
	// acknowledged what we send.
	StateOneWay
	// StateBehind: it is received, but its usage is out of date, of partitions that are
	// not ours, or more than it has room for, or its topology cannot be read.
	StateBehind
	// StateSilent: neither usage nor a heartbeat of a live process of it came for SilentAfter.
	StateSilent
	// StateDead: it is silent, and gossip reports all of it dead.
	StateDead
	// StateLeft: its last process announced that it stops.
	StateLeft
	// StateSelf: our own region.
	StateSelf
)

var stateWords = []string{
	"never_seen", "fresh", "waiting", "joining", "one_way", "behind", "silent", "dead", "left", "self",
}

// String returns the word used in answers, events and logs.
func (s State) String() string { return quota.EnumName(stateWords, uint8(s)) }

// MarshalText returns String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses String.
func (s *State) UnmarshalText(text []byte) error { return quota.ParseName(s, stateWords, text) }

// Health is what a process, or all of a region, is worth to this one at a moment.
type Health struct {
	State State // by itself, the worst that is true of it
	// Live: it has to be taken into account. Silence alone never ends that, because a process
	// behind a cut goes on admitting.
	Live     bool
	Good     bool // it is received, up to date, and acknowledges us
	Current  bool // its usage is known: it is received, up to date and has sent a snapshot
	Complete bool // all that it has published or can forward is here
	// Heartbeats is how many have come in a row; see Bus.
	Heartbeats int
}

// With is the worse of both in all that counts for a region; h is of a live process.
func (h Health) With(o Health) Health {
	return Health{
		State: max(h.State, o.State), Live: true, Good: h.Good && o.Good, Current: h.Current && o.Current,
		Complete: h.Complete && o.Complete, Heartbeats: min(h.Heartbeats, o.Heartbeats),
	}
}

// Judge says what the sources mean together: the only place that does.
//
//	                               | others say:
//	 the bus                       | nothing      alive        dead
//	-------------------------------+----------------------------------------
//	 it announced that it stops    | left ✗       left ✗       left ✗
//	 nothing was received          | silent ✗     silent       dead ✗
//	 silent for SilentAfter        | silent       silent       dead ✗
//	 received, and its usage is    |
//	   out of date or unreadable   | behind       behind       behind
//	 received, and for OneWayAfter |
//	   does not acknowledge us     | one_way      one_way      one_way
//	 received, not all of it yet   | joining      joining      joining
//	 received                      | fresh        fresh        fresh
//
// ✗: not live. The others are, of a sibling, its entry in the store that it shares with us,
// once that was read, and of any other process gossip; see Reported. No word of theirs makes
// a process better than the bus has it.
func Judge(now time.Duration, m *Member) Health {
	h := Health{
		State: StateFresh, Live: true, Complete: m.Synced && m.MissingSince == 0 && !m.ForwardsMissing, Heartbeats: m.Heartbeats,
	}
	acknowledges := m.AckedAt != 0 && now-m.AckedAt <= OneWayAfter
	switch reported := m.Reported(); {
	case m.LeftUntil != 0:
		h.State, h.Live = StateLeft, false
	case m.Silent(now) && reported == Dead:
		h.State, h.Live = StateDead, false
	case m.Silent(now):
		h.State, h.Live = StateSilent, m.ReceivedAt != 0 || reported == Alive
	case m.View.OtherKey, m.View.Unreadable, m.Full, m.Unsent > BehindAfter, m.Missing(now) > SilentAfter:
		h.State = StateBehind
	case !acknowledges && (m.AckedAt != 0 || m.Heartbeats >= GoodHeartbeats):
		h.State = StateOneWay
	case m.AckedAt == 0, !m.Synced: // it has only just appeared, or was forgotten
		h.State = StateJoining
	}
	h.Good = h.State <= StateJoining && acknowledges
	h.Current = h.State <= StateOneWay && m.Synced
	return h
}

// Reported is what others than the bus say of a process.
func (m *Member) Reported() Word {
	switch {
	case !m.Store.Read:
		return m.Gossip.State
	case m.Store.Alive:
		return Alive
	}
	return Dead
}

// Silent reports whether neither usage nor a heartbeat of the process arrived for SilentAfter.
func (b *Bus) Silent(now time.Duration) bool {
	return b.ReceivedAt == 0 || now-b.ReceivedAt > SilentAfter
}

// Missing is how long changes of the process have been missing here; 0: none are.
func (b *Bus) Missing(now time.Duration) time.Duration {
	if b.MissingSince == 0 {
		return 0
	}
	return now - b.MissingSince
}
