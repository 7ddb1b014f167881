package global

import (
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/sync/wire"
)

// PartitionID is the id by which regions tell each other of the partition that a store
// counts under total, the key of its usage total. The length of the buckets is no part of
// it, though of the key: while a reload that changes it has not reached everybody, or
// what was admitted before counts still, one partition has totals of several lengths, and
// an estimate is the sum of all. It allocates nothing for keys of an ordinary length.
func PartitionID(key wire.Key, total string) uint64 {
	return key.IDOf(limiter.CutBuckets(total))
}
