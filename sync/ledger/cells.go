package ledger

import "iter"

// What a shard holds, by number in its slabs. All of it is free of pointers.
//
//	index[id] ─▶ series ─next▶ series          same id, another limit or length
//	               │ │
//	               │ └─own▶ own ─cells▶ ownCell ─▶ ownCell …
//	               │         └ before, after: the outbox
//	               └─peers▶ cell ─next▶ cell …  any region, bucket, epoch
//
// A partition that three regions use has 24 bytes of series, 4×32 of cells and
// about 20 to 40 of index, and where we use it ourselves 56 and 2×48 more.

// series is one id under one shape.
type series struct {
	id    uint64
	shape uint32 // 0: this slot is free
	next  uint32 // another series of the id
	peers uint32 // first cell
	own   uint32
}

// cell is a total of another region, packed to 32 bytes.
//
//	name   epoch (57 bits) | region (7)
//	place  µs of our monotonic clock at which the bucket began
//	count  units (43)      | bucket, upper 21 bits
//	low    bucket, lower 32 bits
type cell struct {
	name  uint64
	place int64
	count uint64
	low   uint32
	next  uint32
}

const (
	regionBits = 7
	highBits   = 21
	highMask   = 1<<highBits - 1
)

// cellName is what a cell is found by, beside its bucket.
func cellName(region int, epoch int64) uint64 { return uint64(epoch)<<regionBits | uint64(region) }

func (c *cell) region() int   { return int(c.name & (MaxRegions - 1)) }
func (c *cell) epoch() int64  { return int64(c.name >> regionBits) }
func (c *cell) units() int64  { return int64(c.count >> highBits) }
func (c *cell) bucket() int64 { return int64(c.count&highMask)<<32 | int64(c.low) }

func (c *cell) setUnits(units int64) { c.count = uint64(units)<<highBits | c.count&highMask }

func (c *cell) setBucket(bucket int64) {
	c.count = c.count&^highMask | uint64(bucket)>>32
	c.low = uint32(bucket)
}

// own is what a series has beside its peers' cells while our region has totals in
// it; it goes with the last of them.
type own struct {
	// life is the epoch of the key in the store by the newest Record, at TIME
	// lifeUS; 0: there is no such key. Meaningless until known.
	life, lifeUS int64
	limitUnits   int64 // L as last told
	since        int64 // µs of our clock: age of the oldest unpublished change
	series       uint32
	cells        uint32 // first ownCell
	before       uint32 // neighbours in the outbox
	after        uint32
	known        bool
	state        outboxState
}

// ownCell is a total of our own region. taken is how much of it was published, or
// came from somebody who has it.
type ownCell struct {
	bucket, epoch, place int64
	units, taken         int64
	next                 uint32
}

// peersOf walks the totals of other regions in a series.
func (sh *shard) peersOf(s *series) iter.Seq[*cell] {
	return func(yield func(*cell) bool) {
		for i := s.peers; i != 0; {
			c := sh.cells.at(i)
			if !yield(c) {
				return
			}
			i = c.next
		}
	}
}

// ownOf walks our own, given series.own.
func (sh *shard) ownOf(own uint32) iter.Seq[*ownCell] {
	return func(yield func(*ownCell) bool) {
		if own == 0 {
			return
		}
		for i := sh.owns.at(own).cells; i != 0; {
			c := sh.ownCells.at(i)
			if !yield(c) {
				return
			}
			i = c.next
		}
	}
}
