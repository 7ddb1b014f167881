package wire

import "github.com/regiond/regiond/quota"

// Version is the one version of the format that this package writes and reads.
const Version = 1

// What a message may hold. A reader refuses more before it allocates for it, and
// a writer has to stay within: see Split.
const (
	// MaxMessage is the most bytes of a message, and of its body once
	// decompressed. NATS refuses a payload above 1 MiB unless told otherwise; half
	// of it is a message of the most totals and leaves room for an operator who
	// lowered that.
	MaxMessage = 512 << 10
	// MaxGroupBytes is how many of them the groups of a usage message may take,
	// encoded. The rest is ample for the envelope and two long names.
	MaxGroupBytes = MaxMessage - 1<<10
	// MaxEntries is the most totals of a message, in all its groups: at 14 bytes
	// each 448 KiB.
	MaxEntries = 32_768
	// MaxGroups is the most groups of a message: the limits of a large topology in
	// two buckets.
	MaxGroups = 1_024
	// MaxChunks is the most parts of a digest, so that a reader can keep a bit for
	// each: 500 million totals in full messages, 16 million in messages of 1,000.
	MaxChunks = 16_384
	// MaxAcks is the most processes that one beat can answer.
	MaxAcks = 256
	// MaxRegions is the most regions of a topology, so of members and weights.
	MaxRegions = 100
)

// What a value may be.
const (
	// MaxInstance is the most bytes of an instance's name, which may be the name
	// of a host.
	MaxInstance = 255
	// MaxLimit is the most bytes of "<policy>.<limit>".
	MaxLimit = 2*quota.MaxName + 1
	// MaxWeight is the largest weight of a region, as in topology.yaml.
	MaxWeight = 1_000_000
	// EndOfTime, µs since the epoch, is above every point in time of a message: the
	// year 2112. Lua counts exactly to the next power of two, and sums of a few
	// times cannot overflow.
	EndOfTime = 1 << 52
	// MaxBuckets is the most buckets that a window may consist of: W is at most
	// MaxBuckets times the length of a bucket.
	MaxBuckets = 60
)

// compressAbove is the size of a body, in bytes, from which compressing it is
// tried. Beats and small changes are below, and would win nothing that the
// network notices.
const compressAbove = 2 << 10
