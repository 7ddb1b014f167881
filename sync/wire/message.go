package wire

import "github.com/regiond/regiond/quota"

// Usage carries totals, of partitions that changed or, in chunks, of all.
type Usage struct {
	From   quota.Process
	Seq    uint64 // counts the author's messages of all kinds from 1
	TimeUS int64  // the author's store clock when it was sent
	// Of is empty for the author's own totals. Otherwise it names the region whose
	// totals these are, as far as the author knows them: the region itself looks at
	// them, for what it lost, and those that do not hear it.
	Of string
	// OfTimeUS is the store clock of Of when this was sent, as far as the author knows;
	// 0: it does not say. Buckets are numbered by that clock, which may be far from the
	// author's.
	OfTimeUS int64
	Chunk    Chunk // zero for changes
	Groups   []Group
}

// Chunk numbers the parts of a digest.
type Chunk struct {
	Digest uint64 // names the digest within its author's life; 0: this is none
	Index  uint32 // from 0
	Count  uint32 // at least 1 in a digest
}

// Group is the totals of one limit in one bucket, as columns of equal length.
type Group struct {
	Limit    string // "<policy>.<limit>"
	WindowUS int64  // W
	BucketUS int64  // length of a bucket
	Bucket   int64  // quota.Counter.Bucket
	IDs      []uint64
	Epochs   []int64
	Units    []int64
}

// Beat says that a process is there, what it hears and what it believes.
type Beat struct {
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

// DigestRequest asks the processes of the region in the subject to publish all
// their live totals.
type DigestRequest struct {
	From quota.Process
	// Echo asks for what they know of the totals of From's own region as well.
	Echo bool
	// Missing names the regions that From does not hear: it asks for what they know
	// of the totals of these, before their own.
	Missing []string
}
