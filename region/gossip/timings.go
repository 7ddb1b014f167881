package gossip

import (
	"log/slog"
	"time"

	"github.com/hashicorp/memberlist"
)

// What this package does by itself, and how often.
const (
	// RejoinInterval is how often processes that should be there and are not are
	// called again, less up to a fifth. The library calls once and never again.
	RejoinInterval = 5 * time.Second
	// Remembered is how long the dead and the left stay in Members.
	Remembered = 10 * time.Minute
	// DriftAlarm is how long configurations may differ before it is an alarm: a
	// rollout takes minutes, a forgotten region for ever.
	DriftAlarm = 5 * time.Minute

	// leaveTimeout and updateTimeout bound how long the library may take to tell
	// somebody; it needs two rounds of gossip.
	leaveTimeout  = 500 * time.Millisecond
	updateTimeout = 500 * time.Millisecond
	// housekeeping is how often time alone is looked at: drift, conflicts, those
	// to be forgotten.
	housekeeping = time.Second
	// resolveTimeout bounds one look-up of a name.
	resolveTimeout = 2 * time.Second
	// maxMembers is far above any deployment and bounds what strangers without a
	// key to guess can make us remember.
	maxMembers = 1024
)

// config is everything the library is told. Whatever matters is said here, so
// that a new version's defaults change nothing.
func (g *Gossip) config() *memberlist.Config {
	return &memberlist.Config{
		Name:      g.options.name(),
		Transport: g.link,
		Label:     g.options.Cluster,
		SecretKey: g.options.Key,

		ProtocolVersion: memberlist.ProtocolVersionMax,

		// One probe a second, in turn: with n others a crash is met after n/2
		// seconds on average. Half a second is more than any round trip on Earth
		// and leaves the other half to the indirect probes.
		ProbeInterval:  time.Second,
		ProbeTimeout:   500 * time.Millisecond,
		IndirectChecks: 3,
		// A suspect has 4 s to say that it lives (up to 8 s where witnesses are
		// missing): longer than a garbage collection or a lost packet or two, and
		// an isolated process learns in seconds, not minutes, that it is alone.
		SuspicionMult:           4,
		SuspicionMaxTimeoutMult: 2,
		// A process that is itself too slow probes up to eight times slower
		// instead of accusing everybody.
		AwarenessMaxMultiplier: 8,

		// News reaches up to six processes in one
		// round and more in two. Without news nothing is sent.
		GossipInterval: 200 * time.Millisecond,
		GossipNodes:    5,
		RetransmitMult: 4,
		// As long as the dead are told that they are, they can object.
		GossipToTheDeadTime: time.Minute,
		// A full exchange with one other repairs what loss has hidden.
		PushPullInterval: 15 * time.Second,
		// Twice the worst handshake on a lossy path; a firewall that swallows
		// packets costs no more than this per attempt.
		TCPTimeout: 3 * time.Second,
		// A crashed process comes back under its name at a new address: until then
		// a namesake is refused.
		DeadNodeReclaimTime: 10 * time.Second,

		// Packets of 1,200 bytes pass every tunnel; nothing here is worth compressing.
		UDPBufferSize:        1200,
		EnableCompression:    false,
		GossipVerifyIncoming: true,
		GossipVerifyOutgoing: true,
		HandoffQueueDepth:    1024,
		QueueCheckInterval:   30 * time.Second,

		Delegate: self{g},
		Events:   g.roster,
		Alive:    g.roster,
		Conflict: g.conflicts,
		Logger:   slog.NewLogLogger(g.journal, slog.LevelDebug),
	}
}
