package ledger_test

import (
	"runtime"
	"testing"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

const minute = int64(60_000_000)

// hash spreads i over all ids, as the keyed hash of a partition does.
func hash(i int) uint64 {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>27
}

// crowd is a ledger with n partitions that the peers use, in two buckets each.
func crowd(tb tester, n int, clock *fakeClock, peers ...string) *ledger.Ledger {
	l := newLedger(tb, clock, func(o *ledger.Options) { o.Regions = func() int { return 3 } })
	g := wire.Group{Limit: "standard.sustained", WindowUS: minute}
	for _, peer := range peers {
		for _, bucket := range []int64{startUS/minute - 1, startUS / minute} {
			g.Bucket = bucket
			for first := 0; first < n; first += 32_768 {
				size := min(32_768, n-first)
				g.IDs, g.Generations, g.Units = make([]uint64, size), make([]int64, size), make([]int64, size)
				for i := range size {
					g.IDs[i], g.Generations[i], g.Units[i] = hash(first+i), startUS-int64(i), int64(i%600)+1
				}
				if err := l.Fold(peer, startUS, clock.now(), []wire.Group{g}, false); err != nil {
					tb.Fatal(err)
				}
			}
		}
	}
	return l
}

func use(l *ledger.Ledger, id uint64, units int64, storeUS int64) {
	s := ledger.Series{ID: id, Limit: "standard.sustained", Units: 600, WindowUS: minute}
	l.Record(&s, quota.Counter{Bucket: storeUS / minute, Generation: startUS, Units: units}, quota.Gauge{}, storeUS)
}

// heap is what is in use, all of it.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemory: a partition that two peers use, in two buckets each, costs at most
// 300 bytes, the index included. BenchmarkMemory shows it for larger numbers.
func TestMemory(t *testing.T) {
	const n = 100_000
	before := heap()
	l := crowd(t, n, &fakeClock{}, "us-east", "ap-south")
	if each := int64(heap()-before) / n; each > 300 {
		t.Errorf("%d bytes for each", each)
	} else {
		t.Logf("%d bytes for each", each)
	}
	if l.Series() != n {
		t.Errorf("%d series, want %d", l.Series(), n)
	}
}
