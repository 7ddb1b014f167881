package sim

// hard is a state that is hard to get right, and that a run has to have been in to be
// worth anything.
type hard uint8

const (
	deniedByRemote hard = iota
	overshoot
	twoGenerations
	ackOnly
	snapshotRepaired
	busDeadGossipAlive
	gossipDeadBusAlive
	allModes
	lostSubtracted
	bridge
	rolledDuringCut
	viewsDiffered
	smallerParts
	frozenDistrusts
	secondJoined
	forwarded
	suffixLost
	steppedBack
	steppedAhead
	localAdmitted
	localPublished
	crashedUnpublished
	ownStateReturned
	duplicate
	overtaken
	leftAsPlanned
	diedUnannounced
	misreported
	poisoned
	flapped
	limitChanged
	allAway
	hardStates // how many
)

// String says which state it is.
func (h hard) String() string {
	return [hardStates]string{
		"denied by remote usage", "went over the limit, explained", "two generations alive", "one-way cut detected by ack only",
		"snapshot repaired a lost message", "bus dead while gossip alive", "gossip dead while bus alive", "all modes in one run",
		"counters subtracted after a flush", "bridge: two groups around one region", "bucket rolled during a cut", "views differ",
		"parts smaller during drift", "process frozen distrusts", "second process joined", "counters of a third region were forwarded",
		"store lost its latest writes", "store clock stepped back", "store clock stepped ahead", "admitted while the store was away",
		"local admissions were published", "crashed with unpublished changes", "own counters came back from a peer",
		"a message came twice", "a message was overtaken", "left as planned", "died without a word", "gossip was wrong about a death",
		"poison was refused", "link flapped, wait doubled", "limit changed region by region", "every store away at once",
	}[h]
}

// Hard counts how often each hard state was reached.
type Hard [hardStates]int64

func (w *World) reached(h hard) { w.hard[h]++ }
