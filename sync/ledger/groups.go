package ledger

import (
	"cmp"
	"slices"

	"github.com/regiond/regiond/sync/wire"
)

// entry is a total on its way out.
type entry struct {
	shape         *shape
	id            uint64
	bucket, epoch int64
	units         int64
}

// compare orders shapes by their names and lengths.
func (s *shape) compare(t *shape) int {
	return cmp.Or(cmp.Compare(s.limit, t.limit), cmp.Compare(s.windowUS, t.windowUS), cmp.Compare(s.bucketUS, t.bucketUS))
}

// group puts totals together by limit and bucket, in a fixed order, with ids
// ascending in each. It sorts es.
func group(es []entry) []wire.Group {
	if len(es) == 0 {
		return nil
	}
	slices.SortFunc(es, func(a, b entry) int {
		if a.shape != b.shape {
			return cmp.Compare(a.shape.order, b.shape.order)
		}
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.id, b.id), cmp.Compare(a.epoch, b.epoch))
	})
	ids, numbers := make([]uint64, len(es)), make([]int64, 2*len(es))
	epochs, units := numbers[:len(es)], numbers[len(es):]
	var gs []wire.Group
	for i := 0; i < len(es); {
		first, start := &es[i], i
		for ; i < len(es) && es[i].shape == first.shape && es[i].bucket == first.bucket; i++ {
			ids[i], epochs[i], units[i] = es[i].id, es[i].epoch, es[i].units
		}
		gs = append(gs, wire.Group{
			Limit: first.shape.limit, WindowUS: first.shape.windowUS, BucketUS: first.shape.bucketUS, Bucket: first.bucket,
			IDs: ids[start:i:i], Generations: epochs[start:i:i], Units: units[start:i:i],
		})
	}
	slices.SortFunc(gs, func(a, b wire.Group) int {
		return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.WindowUS, b.WindowUS),
			cmp.Compare(a.BucketUS, b.BucketUS), cmp.Compare(a.Bucket, b.Bucket))
	})
	return gs
}
