package view

import "time"

// How long is too long. The mesh sends a beat every 500 ms, and at once when what
// it advertises changes.
const (
	// BeatEvery is how often a process is heard at the least.
	BeatEvery = 500 * time.Millisecond
	// SilentAfter is how long a process may be unheard. One lost beat leaves a gap
	// of 1 s; the rest is room for a late one. Noticed on the next Observe, silence
	// is known after at most 1.35 s.
	SilentAfter = 1300 * time.Millisecond
	// BehindAfter is how old the oldest unsent change of a process may be before its
	// totals are as good as silence.
	BehindAfter = time.Second
	// UnheardAfter is how old the newest message of ours that a peer acknowledges may
	// be. At its worst the age is 500 ms (our message left just after the one before)
	// + one way + 500 ms (it came just after the peer's beat) + one way back, until
	// the next beat: 1 s + 300 ms of round trip. One beat lost, ours or theirs, makes
	// that 1.8 s, so 200 ms remain for late timers. A cut from us to them is known
	// here within 2.05 s, and usually sooner, because the peer advertises that it
	// misses us.
	UnheardAfter = 2 * time.Second
	// FrozenAfter is how far two calls of Observe may be apart, and how old a View
	// may be, before this process must have stood still.
	FrozenAfter = time.Second
	// JoiningFor bounds how long a process that starts waits for its peers.
	JoiningFor = 2 * time.Second
	// NewcomerFor is how long a process that joins a region in good standing is left
	// out of the judgement of that region: its own JoiningFor, one beat each way,
	// and some. It may use no more than its own region's part meanwhile.
	NewcomerFor = 3 * time.Second
)

// How a region that was excluded comes back.
const (
	// GoodBeats is how many beats in a row a region must have been heard with.
	GoodBeats = 3
	// FirstWait is how long it must have been good: the time of GoodBeats.
	FirstWait = GoodBeats * BeatEvery
	// LongestWait bounds FirstWait doubled, and doubled again, by exclusions that
	// follow each other.
	LongestWait = 30 * time.Second
	// GoodStanding is how long after its return a region must have stayed for its
	// next exclusion to count as the first.
	GoodStanding = time.Minute
)

// MaxTopologies bounds how many topologies that differ from ours are remembered at
// once. With more in play nobody can say what is whose, and every part is 0.
const MaxTopologies = 16
