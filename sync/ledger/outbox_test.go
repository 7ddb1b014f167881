package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
)

// isUrgent reports whether there was a signal, and takes it.
func isUrgent(l *ledger.Ledger) bool {
	select {
	case <-l.Urgent():
		return true
	default:
		return false
	}
}

// TestUrgentEdges: urgent is what exceeds max(1, L/(100·(R−1))), not what equals it.
func TestUrgentEdges(t *testing.T) {
	for _, c := range []struct {
		limit       int64
		regions     int
		calm, hurry int64
	}{
		{1, 2, 1, 2},
		{100, 2, 1, 2},
		{199, 2, 1, 2},
		{200, 2, 2, 3},
		{600, 2, 6, 7},
		{600, 3, 3, 4},
		{601, 3, 3, 4},
		{800, 5, 2, 3},
		{600, 100, 1, 2},
		{quota.MaxUnits, 2, quota.MaxUnits / 100, quota.MaxUnits/100 + 1},
		{quota.MaxUnits, 1, quota.MaxCounter, 0}, // nobody to tell
	} {
		t.Run(fmt.Sprint(c.limit, c.regions), func(t *testing.T) {
			l := newLedger(t, &fakeClock{}, func(o *ledger.Options) { o.Regions = func() int { return c.regions } })
			s := pairLimit
			s.Units = c.limit
			l.Record(&s, quota.Counter{Bucket: startUS / s.BucketUS, Generation: 1, Units: c.calm}, startUS)
			if isUrgent(l) || l.Take(10, false) != nil {
				t.Errorf("%d unpublished of %d are urgent", c.calm, c.limit)
			}
			if c.hurry == 0 {
				if l.Take(10, true) != nil || l.Unsent() != 0 {
					t.Error("something to publish, for nobody")
				}
				return
			}
			l.Record(&s, quota.Counter{Bucket: startUS / s.BucketUS, Generation: 1, Units: c.hurry}, startUS)
			if !isUrgent(l) || len(l.Take(10, false)) != 1 {
				t.Errorf("%d unpublished of %d are not urgent", c.hurry, c.limit)
			}
			if l.Take(10, true) != nil || isUrgent(l) {
				t.Error("taken twice")
			}
		})
	}
}

// TestUrgentByPeer: a peer's news about what we have not published makes it urgent;
// what a peer repeats, a sibling or an echo says does not.
func TestUrgentByPeer(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	bucket := startUS / pairLimit.BucketUS
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, 1, 5))
	record(l, 1, 1, startUS)
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, 1, 5))
	mustFold(t, l, "eu-west", startUS, 0, one(pairLimit, bucket, 2, 5))
	if isUrgent(l) {
		t.Error("urgent without news")
	}
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, 1, 6))
	if !isUrgent(l) || len(l.Take(10, false)) != 1 {
		t.Error("not urgent, though a peer has used it too")
	}
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, 1, 7))
	if isUrgent(l) {
		t.Error("urgent with nothing unpublished")
	}
	record(l, 1, 2, startUS)
	mustFold(t, l, "eu-west", startUS, 0, one(pairLimit, bucket, 1, 2))
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, 1, 8))
	if isUrgent(l) || l.Take(10, true) != nil || l.Unsent() != 0 {
		t.Error("what a sibling has published is to be published again")
	}
}

// TestFullestFirst: when caps bind, what is nearest to its limit goes first, but
// not before what has waited for more than 800 ms.
func TestFullestFirst(t *testing.T) {
	clock := &fakeClock{}
	l := newLedger(t, clock, nil)
	grow := func(id uint64, limit, units int64) {
		s := pairLimit
		s.ID, s.Units = id, limit
		storeUS := startUS + clock.us.Load()
		l.Record(&s, quota.Counter{Bucket: storeUS / s.BucketUS, Generation: 1, Units: units}, storeUS)
	}
	take := func() []uint64 { return l.Take(1, true)[0].IDs }
	grow(1, 100_000, 1)
	clock.advance(100 * time.Millisecond)
	grow(2, 100_000, 2)
	clock.advance(500 * time.Millisecond)
	grow(3, 200_000, 900)  // 0.45 %
	grow(4, 1_000, 5)      // 0.5 %
	grow(5, 100_000, 500)  // as full, a higher id
	grow(6, 1_000_000, 11) // hardly anything
	clock.advance(200 * time.Millisecond)
	var order []uint64
	order = append(order, take()...) // nobody waited for more than 800 ms
	clock.advance(time.Microsecond)
	order = append(order, take()...) // 1 has
	clock.advance(100 * time.Millisecond)
	if got := l.Unsent(); got != 800*time.Millisecond+time.Microsecond {
		t.Errorf("oldest waits for %v", got)
	}
	grow(7, 100, 50) // urgent: after 2, which waited, and before the others
	for range 5 {
		order = append(order, take()...)
	}
	if want := []uint64{4, 1, 2, 7, 5, 3, 6}; !slices.Equal(order, want) {
		t.Errorf("taken in order %d, want %d", order, want)
	}
	if l.Take(10, true) != nil || l.Unsent() != 0 {
		t.Error("something is left")
	}
}

// TestManyTakenInOrder: of a hundred times more changes than fit the fullest are
// taken, and in the end all of them, once.
func TestManyTakenInOrder(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	const n = 5000
	for i := range n {
		s := pairLimit
		s.ID, s.Units = hash(i), quota.MaxUnits
		l.Record(&s, quota.Counter{Bucket: startUS / s.BucketUS, Generation: 1, Units: int64(i + 1)}, startUS)
	}
	left := int64(n)
	for left > 0 {
		size := int(min(left, 50))
		cells := flatten(t, "eu-west", size, l.Take(50, true))
		for _, c := range cells {
			if c.Units > left || c.Units <= left-int64(size) {
				t.Fatalf("%d units taken, while %d are the fullest left", c.Units, left)
			}
		}
		left -= int64(len(cells))
	}
	if l.Take(50, true) != nil {
		t.Error("something is taken twice")
	}
}

// TestUrgentLeft: what is urgent and did not fit is announced again.
func TestUrgentLeft(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	for i := range 3 {
		s := pairLimit
		s.ID = hash(i)
		l.Record(&s, quota.Counter{Bucket: startUS / s.BucketUS, Generation: 1, Units: 100}, startUS)
	}
	for _, more := range []bool{true, true, false} {
		if !isUrgent(l) || len(l.Take(1, false)) != 1 {
			t.Fatal("nothing urgent")
		}
		if len(l.Urgent()) > 0 != more {
			t.Errorf("announced: %v", !more)
		}
	}
	if l.Take(0, true) != nil {
		t.Error("nothing was asked for")
	}
}

// TestAheadIsKept: after our store's clock stepped back, counters that lie ahead of
// it are neither sent nor waited for; peers would refuse the message. Once the
// clock has come near they are published.
func TestAheadIsKept(t *testing.T) {
	clock := &fakeClock{}
	l := newLedger(t, clock, nil)
	fine := ledger.Series{ID: 7, Limit: "b.fine", Units: 50, WindowUS: 60_000_000, BucketUS: 1_000_000}
	l.Record(&fine, quota.Counter{Bucket: startUS / fine.BucketUS, Generation: 1, Units: 5}, startUS)
	back := startUS - 10_000_000
	l.Record(&fine, quota.Counter{Bucket: back / fine.BucketUS, Generation: 2, Units: 1}, back)
	if got := flatten(t, "eu-west", 10, l.Take(10, true)); len(got) != 1 || got[0].Generation != 2 || l.Unsent() != 0 {
		t.Errorf("taken %v, oldest waits for %v", got, l.Unsent())
	}
	if got := roll(t, l); len(got) != 1 || len(l.Snapshot()) != 2 {
		t.Errorf("in the digest %v, held %v", got, l.Snapshot())
	}
	clock.advance(9 * time.Second)
	isUrgent(l) // as it was when it was recorded
	if l.Take(10, true) != nil || l.Unsent() != 0 || isUrgent(l) {
		t.Error("what lies ahead is still taken, waited for or urgent")
	}
	clock.advance(time.Second)
	if got := l.Unsent(); got != time.Second {
		t.Errorf("what can be published waits for %v", got)
	}
	if got := flatten(t, "eu-west", 10, l.Take(10, true)); len(got) != 1 || got[0].Generation != 1 || got[0].Units != 5 {
		t.Errorf("taken later %v", got)
	}
	if got := roll(t, l); len(got) != 2 {
		t.Errorf("in the later digest %v", got)
	}
}

// TestLateReadingLosesNothing: an answer of the store that was under way for long turns
// its clock back until the next one. What was admitted meanwhile is published then.
func TestLateReadingLosesNothing(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	fine := ledger.Series{ID: 7, Limit: "b.fine", Units: 50, WindowUS: 10_000_000, BucketUS: 1_000_000}
	grow := func(id uint64, storeUS int64) {
		s := fine
		s.ID = id
		l.Record(&s, quota.Counter{Bucket: storeUS / s.BucketUS, Generation: 1, Units: 5}, storeUS)
	}
	begin := (startUS/fine.BucketUS + 1) * fine.BucketUS // of a bucket
	grow(7, begin)
	grow(8, begin-600_000) // is late
	for _, all := range []bool{false, true} {
		for _, c := range flatten(t, "eu-west", 10, l.Take(10, all)) {
			if c.ID == 7 {
				t.Error("a total that lies ahead by the newest reading is sent")
			}
		}
	}
	grow(9, begin)
	if got := flatten(t, "eu-west", 10, l.Take(10, true)); len(got) != 2 || got[0].ID != 7 || got[1].ID != 9 {
		t.Errorf("taken %v, want what was held back too", got)
	}
}
