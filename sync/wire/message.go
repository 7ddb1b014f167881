// Package wire is the format of the messages between regions: protobuf, versioned, and
// bounded before anything is allocated. No other package knows it.
package wire

import (
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/sync/wire/internal/pb"
)

// Version is the one version of the format that this package writes and reads.
const Version = 3

// What a message may hold. A reader refuses more before it allocates for it; Split keeps
// a writer within.
const (
	// MaxMessage is the most bytes of a message, and of its body once decompressed. NATS
	// refuses a payload above 1 MiB by default; half of it leaves room for an operator
	// who lowered that.
	MaxMessage = 512 << 10
	// MaxEntries is the most counters of a message, in all its groups: at 14 bytes each
	// 448 KiB. In a snapshot each has 16 more.
	MaxEntries = 32_768
	// MaxGroups is the most groups of a message: the limits of a large topology in two
	// buckets.
	MaxGroups = 1_024
	// MaxChunks is the most messages of a snapshot, so that a reader can keep a bit for
	// each: 350 million counters in full messages, 16 million in messages of 1,000.
	MaxChunks = 16_384
	// MaxAcks is the most processes that one heartbeat can acknowledge, and the most
	// requests that a snapshot can answer.
	MaxAcks = 256
	// MaxLoans is the most wants of a message, the most grants and the most returns, and
	// MaxHeld the most loans that its wants name.
	MaxLoans = 2_048
	MaxHeld  = 4 * MaxLoans
	// MaxInstance is the most bytes of an instance's name, which may be a host's name.
	MaxInstance = 255
	// EndOfTime, µs since the epoch, is above every point in time of a message: the year
	// 2112. Lua counts exactly to the next power of two, and sums of a few times cannot
	// overflow.
	EndOfTime = 1 << 52
)

// Message is one of *Usage, *Heartbeat, *SnapshotRequest, *Loans, *Reset, *Top and *Overrides.
type Message interface {
	body() *pb.Body
	check() error // of a value out of its range
}

// Numbered is a Message that its author numbers: any but a *SnapshotRequest.
type Numbered interface {
	Message
	// Author is the message's own Head, which its author sets.
	Author() *Head
}

// Head is the author of a message and its number.
type Head struct {
	From quota.Process
	Seq  uint64 // numbers the author's messages of all kinds from 1
}

// Author implements Numbered.
func (h *Head) Author() *Head { return h }

// Usage carries counters: of partitions that changed or, in chunks, what was requested.
type Usage struct {
	Head
	TimeUS int64 // the author's store clock when it was sent
	// Origin is empty for the author's own counters. Otherwise the author forwards what it
	// knows of the counters of this region: to the region itself, which may have lost
	// them, and to those that do not receive from it.
	Origin string
	// OriginTimeUS is the store clock of Origin when this was sent, as far as the author
	// knows; 0 without Origin. Buckets are numbered by that clock, which may be far from
	// the author's.
	OriginTimeUS int64
	// Number numbers the author's messages of changes from 1; 0 in a chunk.
	Number uint64
	Chunk  Chunk // zero for changes
	Groups []Group
}

// Chunk is a piece of a snapshot: of its author's live counters that changed after one of
// its changes.
type Chunk struct {
	Snapshot uint64 // unique within its author's life; 0: not part of a snapshot
	Index    uint32 // from 0
	Count    uint32 // Index+1 in the last, Index+2 in all others
	Since    uint64 // number of the changes after which counters are in it; 0: all are
	UpTo     uint64 // number of the author's newest changes when the snapshot began
	Answers  []Answer
}

func (c *Chunk) is() bool { return c.Snapshot != 0 || c.Index != 0 || c.Count != 0 }

// Answer names a request that a snapshot answers, in its last chunk.
type Answer struct {
	Process quota.Process
	Request uint64
}

// MaxPeriod is the largest number of a period: more hours than there are from the year 0 to EndOfTime.
const MaxPeriod = 1 << 25

// Group is the counters of one limit in one bucket, as columns of equal length.
type Group struct {
	Limit       string // "<policy>.<limit>"
	WindowUS    int64  // W, and the length of the bucket
	Bucket      int64  // quota.Counter.Bucket
	IDs         []uint64
	Generations []int64
	Units       []int64
	// Growth is how each counter of a snapshot grew, two for each row; package ledger knows the meaning.
	// Without it nothing is known of that.
	Growth []uint64
	// EndsUS is when the period Bucket ends by the author's store clock, of a limit with a calendar; 0 of any other. It is not in the
	// name of a counter: regions with other zone data have other ends.
	EndsUS int64
	// Gauges has one for each row, zero for those without, or is empty. Those take no bytes of a message.
	Gauges []Gauge
}

// Gauge is a quota.Gauge on its way. LeftUS is how long until its last hold ended when the message was made: so no clock matters, and
// whatever keeps the message lets it count for longer, never for less.
type Gauge struct {
	Sequence, Units, LeftUS int64
}

// Heartbeat reports that a process is alive, from whom it receives and its view of the
// topology.
type Heartbeat struct {
	Head
	TimeUS   int64
	Acks     []Ack          // of every other process, siblings too, that it received from lately
	Members  []string       // the regions that the author would count on and its own, ascending
	Topology uint64         // hash of the author's regions and weights
	Weights  []quota.Weight // those regions and weights, while the hash differs from a peer's
	UnsentMS int64          // age of its oldest change that was not yet published
	Leaving  bool           // this is its last message
	Full     bool           // it had to turn counters away for lack of memory
	Key      uint64         // Fingerprint of the key of its ids, 0 if unknown
	Number   uint64         // of the author's newest changes, see Usage; 0: none yet
}

// Ack is the newest message that the author has of a peer process.
type Ack struct {
	Process    quota.Process
	Seq        uint64
	ReceivedUS int64 // the author's store clock when it arrived
}

// SnapshotRequest asks a process to publish what From misses.
type SnapshotRequest struct {
	From, To quota.Process
	Request  uint64 // numbers From's requests from 1; repeated until answered
	Since    uint64 // From has all of To's changes up to this number; 0: it needs all counters
	OwnState bool   // also what To knows of the counters of From's own region
	// Missing names the regions that From does not receive from. What is known of their
	// counters is requested too.
	Missing []string
}

// Loans carries what regions lend each other. Wants are for all other regions, grants and
// returns for one. Any of it may be lost, repeated or late.
type Loans struct {
	Head
	Wants   []Want
	Grants  []Grant
	Returns []Return
}

// Len is how many wants, grants and returns there are.
func (l *Loans) Len() int { return len(l.Wants) + len(l.Grants) + len(l.Returns) }

// Fits reports whether a reader takes so many in one message.
func (l *Loans) Fits() bool {
	held := 0
	for i := range l.Wants {
		held += len(l.Wants[i].Held)
	}
	return max(len(l.Wants), len(l.Grants), len(l.Returns)) <= MaxLoans && held <= MaxHeld
}

// Want is a want of one partition. Its From is the author's region, also where it says
// otherwise.
type Want struct {
	PartitionID uint64 // Key.LoansID
	loan.Want
	// Partition is what PartitionID stands for, for lenders that never met it. It travels as
	// Sealed, see Secret; both are nil while all know it.
	Partition *quota.CounterKey
	Sealed    []byte
}

// Grant is a grant for one partition. Its From is the author's region.
type Grant struct {
	PartitionID uint64 // as in Want
	loan.Grant
}

// Return is how much of a loan was given back so far.
type Return struct {
	PartitionID uint64 // as in Want
	Loan        loan.ID
	Back        int64
}

// Reset is about the deletion of a tenant's usage in all regions: who is to delete it, or up
// to where regions have.
type Reset struct {
	Head
	ID uint64 // of the call that began it, never 0
	// Tenant travels as Sealed, see Secret.
	Tenant string
	Sealed []byte
	To     []quota.Process // who deletes it in their regions' stores; none in an answer
	Cuts   []Cut
	// BurntMS is quota.RegionReset's of the author's region.
	BurntMS int64
}

// Top is what a process has counted of whom it denied, and who used most.
type Top struct {
	Head
	// Payload travels as Sealed, see Secret.
	Payload, Sealed []byte
}

// Overrides is about the overrides of tenants; package region/overrides knows what.
type Overrides struct {
	Head
	// Payload travels as Sealed, see Secret; at most MaxPayload bytes.
	Payload, Sealed []byte
}

// Cut supersedes counters of a region: of generations up to UpTo, in buckets that began by
// then or, with CutDeleted, in any.
type Cut struct {
	Region string
	UpTo   int64 // by the region's clock
	State  CutState
}

// CutState is what is known of the counters in the region's store. Of one cut the greater holds.
type CutState uint8

// The states of a Cut.
const (
	CutAnnounced CutState = iota // they may still be there
	CutDeleted
	CutReturned // they were deleted and are there again, as after a failover
)

// groupBytes and rowBytes are the most that a group without its rows, and a row, take in
// a message; the rest of one takes headBytes at most.
const (
	headBytes  = 1 << 10
	groupBytes = 225       // 127 of its limit, 5 numbers of up to 8, 13 tags and lengths
	rowBytes   = 8 + 8 + 7 // id, generation and units
	gaugeBytes = 3 + 8 + 6 + 5
	growthSize = 2 // of a row, in words
)

// Split divides groups among messages of at most MaxEntries counters each and of so many bytes,
// or MaxMessage with 0, in their order. A counter that takes more has a message of its own. A
// group that does not fit is cut between rows; columns are not copied. Groups without rows are
// left out, and without any row there is no message.
func Split(groups []Group, most int) [][]Group {
	if most < 1 || most > MaxMessage {
		most = MaxMessage
	}
	var messages [][]Group
	var message []Group
	entries, bytes := 0, headBytes
	for _, g := range groups {
		for len(g.IDs) > 0 {
			size := rowBytes
			if len(g.Growth) > 0 {
				size += 8 * growthSize
			}
			if len(g.Gauges) > 0 {
				size += gaugeBytes
			}
			n := min(len(g.IDs), MaxEntries-entries, (most-bytes-groupBytes)/size)
			if len(message) == 0 {
				n = max(1, n)
			}
			if n <= 0 || len(message) == MaxGroups {
				messages = append(messages, message)
				message, entries, bytes = nil, 0, headBytes
				continue
			}
			part := g
			part.IDs, g.IDs = g.IDs[:n:n], g.IDs[n:]
			part.Generations, g.Generations = g.Generations[:n:n], g.Generations[n:]
			part.Units, g.Units = g.Units[:n:n], g.Units[n:]
			if m := growthSize * n; len(g.Growth) > 0 {
				part.Growth, g.Growth = g.Growth[:m:m], g.Growth[m:]
			}
			if len(g.Gauges) > 0 {
				part.Gauges, g.Gauges = g.Gauges[:n:n], g.Gauges[n:]
			}
			message = append(message, part)
			entries, bytes = entries+n, bytes+groupBytes+n*size
		}
	}
	if len(message) > 0 {
		messages = append(messages, message)
	}
	return messages
}
