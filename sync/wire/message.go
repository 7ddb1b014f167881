package wire

import "github.com/regiond/regiond/quota"

// Usage carries totals, of partitions that changed or, in chunks, of all.
type Usage struct {
	From   quota.Process
	Seq    uint64 // counts the author's messages of all kinds from 1
	TimeUS int64  // the author's store clock when it was sent
	// Origin is empty for the author's own totals. Otherwise the author forwards what it
	// knows of the totals of this region: to the region itself, which may have lost them,
	// and to those that do not receive from it.
	Origin string
	// OriginTimeUS is the store clock of Origin when this was sent, as far as the author
	// knows; 0 if it does not. Buckets are numbered by that clock, which may be far from
	// the author's.
	OriginTimeUS int64
	Chunk        Chunk // zero for changes
	Groups       []Group
}

// Chunk numbers the messages of a snapshot.
type Chunk struct {
	Snapshot uint64 // unique within its author's life; 0: not part of a snapshot
	Index    uint32 // from 0
	Count    uint32 // at least 1 in a snapshot
}

// Group is the totals of one limit in one bucket, as columns of equal length.
type Group struct {
	Limit       string // "<policy>.<limit>"
	WindowUS    int64  // W
	BucketUS    int64  // length of a bucket
	Bucket      int64  // quota.Counter.Bucket
	IDs         []uint64
	Generations []int64
	Units       []int64
}

// Heartbeat reports that a process is alive, from whom it receives and its view of the
// topology.
type Heartbeat struct {
	From   quota.Process
	Seq    uint64 // as in Usage
	TimeUS int64
	Acks   []Ack // of every peer process, siblings too, that it heard lately
	// Members is M: the regions that the author would count on, itself included,
	// in ascending order.
	Members []string
	// Topology is the hash of the author's regions and weights. Weights spells
	// them out while it differs from a peer's.
	Topology uint64
	Weights  []quota.Weight
	UnsentMS int64 // age of its oldest change that was not yet published
	Leaving  bool  // this is its last message
	// Full: it had to turn totals away for want of room.
	Full bool
	// Key is the fingerprint of the key of its ids, 0 when it does not say.
	Key uint64
}

// Ack is the newest message that the author has of a peer process.
type Ack struct {
	Process    quota.Process
	Seq        uint64
	ReceivedUS int64 // the author's store clock when it came
}

// SnapshotRequest asks the processes of the region in the subject to publish all
// their live totals.
type SnapshotRequest struct {
	From quota.Process
	// OwnState asks for what they know of the totals of From's own region as well.
	OwnState bool
	// Missing names the regions that From does not receive from. What is known of their
	// totals is asked for too, and sent first.
	Missing []string
}
