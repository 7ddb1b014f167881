package view

import "github.com/regiond/regiond/quota"

// State is how a region stands in our eyes. Only StateFresh is counted on. From there
// to StateSilent they are in the order in which the worst is told.
type State uint8

const (
	// StateNeverSeen: none of its processes was ever known here.
	StateNeverSeen State = iota
	// StateFresh: all of its live processes are heard, hear us and were digested, and
	// its wait is over. Any of these failing ends it.
	StateFresh
	// StateWaiting: it is as good as fresh again, but was excluded lately.
	StateWaiting
	// StateJoining: it is heard, but a digest or its first acknowledgement is missing.
	StateJoining
	// StateOneWay: it is heard, and for UnheardAfter, or GoodBeats at first, has not
	// acknowledged what we send.
	StateOneWay
	// StateBehind: it is heard, but what it says is old, or of partitions that are not
	// ours, or it has no room.
	StateBehind
	// StateSilent: a live process of it was not heard for SilentAfter.
	StateSilent
	// StateDead: it is silent, and gossip says that all of it is gone.
	StateDead
	// StateLeft: its last process said that it stops.
	StateLeft
	// StateSelf: our own region.
	StateSelf
)

// String returns the word used in answers, events and logs.
func (s State) String() string {
	return word([]string{
		"never_seen", "fresh", "waiting", "joining", "one_way", "behind", "silent", "dead", "left", "self",
	}, uint8(s))
}

// reason is what a region in this state is told as when it is why we are blind.
func (s State) reason() quota.Reason {
	switch s {
	case StateFresh, StateSelf:
		return quota.ReasonNone
	case StateOneWay:
		return quota.ReasonOneWay
	default:
		return quota.ReasonPeerSilent
	}
}

func word(words []string, i uint8) string {
	if int(i) < len(words) {
		return words[i]
	}
	return "unknown"
}
