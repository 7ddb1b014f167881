package sim

// hard is a state that is hard to get right, and that a run has to have been in to be
// worth anything: a "sometimes" beside all the invariants, which say "always".
type hard uint8

const (
	deniedByRemote hard = iota
	overshoot
	twoEpochs
	ackOnly
	digestRepaired
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
	relayed
	suffixLost
	steppedBack
	steppedAhead
	localAdmitted
	localTold
	crashedUntold
	echoed
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
		"denied by remote usage", "went over the limit, explained", "two epochs alive", "one-way cut detected by ack only",
		"digest repaired a lost message", "bus dead while gossip alive", "gossip dead while bus alive", "all modes in one run",
		"totals subtracted after a flush", "bridge: two groups around one region", "bucket rolled during a cut", "views differ",
		"parts smaller during drift", "process frozen distrusts", "second process joined", "relay told a third region",
		"store lost its latest writes", "store clock stepped back", "store clock stepped ahead", "admitted while the store was away",
		"peers were told of what local admitted", "crashed with changes that nobody was told", "own totals came back from a peer",
		"a message came twice", "a message was overtaken", "left as planned", "died without a word", "gossip was wrong about a death",
		"poison was refused", "link flapped, wait doubled", "limit changed region by region", "every store away at once",
	}[h]
}

// Hard counts how often each hard state was reached, in the order of HardNames.
type Hard [hardStates]int64

// HardNames names the hard states.
func HardNames() []string {
	names := make([]string, hardStates)
	for h := range hardStates {
		names[h] = h.String()
	}
	return names
}

func (w *World) reached(h hard) { w.hard[h]++ }
