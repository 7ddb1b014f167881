package ledger

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
)

// lateUS is how much older than the newest Record another may be and still be one
// that was overtaken: a decision has given up long before. What is older yet comes
// from a store whose clock stepped back, and is news.
const lateUS = 1_000_000

// Record notes what our region's store holds of a series now, which was at its TIME
// storeUS. t.Epoch 0 says that it has no such key. What is not a total (quota.Counter,
// the ranges of package wire) is ignored, and so is what is over already.
//
// The newest Record tells which life of the key the store is in, and so which of
// our totals it lost. That is remembered with our totals: with none there is
// nothing to lose.
func (l *Ledger) Record(s *Series, t quota.Counter, storeUS int64) {
	if t.Generation < 0 || t.Generation > maxUS || t.Units < 0 || t.Units > quota.MaxCounter {
		return
	}
	var b ownBucket
	if !l.begin(&b, s, storeUS) {
		return
	}
	b.bucket, b.epoch = t.Bucket, t.Generation
	sh := l.shard(s.ID)
	sh.mu.Lock()
	if t.Generation != 0 && t.Units > 0 {
		if c := l.ownCell(sh, &b); c != nil && t.Units > c.units {
			c.units = t.Units
			b.urgent = sh.changed(&b, c)
		}
		l.sampled(sh, &b)
	}
	if i := l.find(sh, b.id, &b.key); i != 0 && sh.series.at(i).own != 0 {
		l.told(sh, i, b.nowUS, t.Generation, storeUS)
	}
	sh.mu.Unlock()
	l.end(&b)
}

// Local adds units that this process admitted while the store is away, in the
// bucket that storeUS, the time there as far as known, lies in. The store never
// holds them, so they count as lost from the start.
func (l *Ledger) Local(s *Series, units, storeUS int64) {
	var b ownBucket
	if units <= 0 || !l.begin(&b, s, storeUS) {
		return
	}
	b.bucket, b.epoch = storeUS/s.BucketUS, l.boot
	sh := l.shard(s.ID)
	sh.mu.Lock()
	if c := l.ownCell(sh, &b); c != nil && c.units < quota.MaxCounter {
		c.units += min(units, quota.MaxCounter-c.units)
		b.urgent = sh.changed(&b, c)
		l.sampled(sh, &b)
	}
	sh.mu.Unlock()
	l.end(&b)
}

// sampled notes the check that charged a series of which something is unpublished.
// A later check's Record may have come first: then it is this one's usage as well.
func (l *Ledger) sampled(sh *shard, b *ownBucket) {
	if b.check != nil && b.own != 0 && sh.owns.at(b.own).state != idle {
		l.checks.add(b.id, *b.check)
	}
}

// ownBucket is where a total of our own goes, and what comes of it.
type ownBucket struct {
	id            uint64
	key           shapeKey
	limitUnits    int64
	bucket, epoch int64
	clockUS       int64 // the store's TIME at nowUS of our clock
	nowUS         int64
	peers         int64 // regions that want to know
	check         *trace.SpanContext

	own    uint32 // of the series, once ownCell has given a cell
	urgent bool   // the series became urgent
	done   []finished
}

// begin fills in what needs no lock, and reports whether it makes sense.
func (l *Ledger) begin(b *ownBucket, s *Series, storeUS int64) bool {
	key := shapeKey{s.Limit, s.WindowUS, s.BucketUS}
	if storeUS < 0 || storeUS >= maxUS || key.validate() != nil {
		return false
	}
	*b = ownBucket{
		id: s.ID, key: key, limitUnits: s.Units,
		clockUS: storeUS, nowUS: l.nowUS(), peers: int64(l.regions() - 1),
		check: s.Check,
	}
	l.tell(0, storeUS, b.nowUS)
	return true
}

// end tells everybody, once the lock is given back.
func (l *Ledger) end(b *ownBucket) {
	l.report(b.done)
	if b.urgent {
		l.signal()
	}
}

// yetToCome reports whether the bucket lies further ahead of the store's clock than a
// charge can have put it: the store waits out a fall of less than a bucket in its
// newest, and else counts anew. So what is in it was admitted before the clock stepped
// back. We had it then, at its place, or peers have; as news it would count for as long
// as the step was, and again when the clock comes there. The second more is for totals
// that were read a while after the clock.
func (b *ownBucket) yetToCome() bool {
	return b.bucket*b.key.bucketUS > b.clockUS+b.key.bucketUS+lateUS
}

// ownCell finds or makes the total of our own in a bucket; nil when that is over,
// yet to come, out of range or finds no room.
func (l *Ledger) ownCell(sh *shard, b *ownBucket) *ownCell {
	if b.bucket < 0 || b.bucket > maxUS/b.key.bucketUS {
		return nil
	}
	start := b.bucket * b.key.bucketUS
	place := b.nowUS - (b.clockUS - start)
	if place+b.key.bucketUS+b.key.windowUS <= b.nowUS {
		return nil
	}
	n := 0
	if i := l.find(sh, b.id, &b.key); i != 0 {
		b.own = sh.series.at(i).own
		for c := range sh.ownOf(b.own) {
			if c.bucket == b.bucket && c.epoch == b.epoch {
				return c
			}
			n++
		}
	}
	if b.yetToCome() {
		return nil
	}
	i := l.open(sh, b.id, &b.key)
	if i == 0 {
		l.turnedAway(b.key.windowUS, b.nowUS)
		return nil
	}
	b.done = l.finish(sh, i, b.nowUS, b.done)
	s := sh.series.at(i)
	if n >= maxCells || !l.room() {
		l.turnedAway(b.key.windowUS, b.nowUS)
		return nil
	}
	if s.own == 0 {
		k, o := sh.owns.alloc()
		s.own, o.series = k, i
	}
	b.own = s.own
	o := sh.owns.at(s.own)
	l.owned.Add(1)
	k, c := sh.ownCells.alloc()
	*c = ownCell{bucket: b.bucket, epoch: b.epoch, place: place, next: o.cells}
	o.cells = k
	return c
}

// tell notes the life that the store is in, unless a newer Record was here first.
func (o *own) tell(life, storeUS int64) {
	if !o.known || storeUS >= o.lifeUS || storeUS < o.lifeUS-lateUS {
		o.known, o.life, o.lifeUS = true, life, storeUS
	}
}

// lost reports whether the store no longer holds what was counted in an epoch, or
// never did. Before it was asked we trust it.
func (o *own) lost(epoch, boot int64) bool {
	return epoch == boot || o.known && (o.life == 0 || !quota.SameKey(epoch, o.life))
}
