package ledger

import (
	"cmp"
	"slices"
)

// Cell is a total in a Snapshot.
type Cell struct {
	ID                 uint64
	Limit              string
	WindowUS, BucketUS int64
	Region             string
	Bucket, Epoch      int64
	Units              int64
}

// Snapshot is everything that still counts, ours and others', in the one order it
// can have: ledgers that were told the same give the same, whatever their indexes
// and slots. It is for tests and for people, not for the request path.
func (l *Ledger) Snapshot() []Cell {
	var cells []Cell
	nowUS := l.nowUS()
	for i := range l.shards {
		cells = l.snapshotShard(&l.shards[i], nowUS, cells)
	}
	slices.SortFunc(cells, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.WindowUS, b.WindowUS),
			cmp.Compare(a.BucketUS, b.BucketUS), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Bucket, b.Bucket),
			cmp.Compare(a.Epoch, b.Epoch))
	})
	return cells
}

func (l *Ledger) snapshotShard(sh *shard, nowUS int64, cells []Cell) []Cell {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l.namesMu.RLock() // later than whatever is in the shard
	names := l.names
	l.namesMu.RUnlock()
	for i := uint32(1); i <= sh.series.high; i++ {
		s := sh.series.at(i)
		if s.shape == 0 {
			continue
		}
		sp := l.shapes.at(s.shape)
		add := func(region int, place, bucket, epoch, units int64) {
			if !sp.over(place, nowUS) {
				cells = append(cells, Cell{s.id, sp.limit, sp.windowUS, sp.bucketUS, names[region], bucket, epoch, units})
			}
		}
		for c := range sh.peersOf(s) {
			add(c.region(), c.place, c.bucket(), c.epoch(), c.units())
		}
		for c := range sh.ownOf(s.own) {
			add(0, c.place, c.bucket, c.epoch, c.units)
		}
	}
	return cells
}
