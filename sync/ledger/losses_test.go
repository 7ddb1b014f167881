package ledger_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/test/meters"
)

// A loss is counted once, with the units that were still in the window. What expired, and
// what the store never held, is none.
func TestLossesAreCounted(t *testing.T) {
	const e, anew = startUS - 5_000_000, startUS - 3_000_000 // generations
	bucket := startUS / pairLimit.WindowUS
	type event func(*ledger.Ledger, *fakeClock)
	stored := func(generation, units, us int64) event {
		return func(l *ledger.Ledger, c *fakeClock) {
			c.us.Store(us)
			record(l, generation, units, startUS+us)
		}
	}
	ownState := func(l *ledger.Ledger, _ *fakeClock) {
		if err := l.Fold("eu-west", startUS, 0, one(pairLimit, bucket, e, 10), false); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name          string
		events        []event
		losses, units int64
		there         int64 // µs after the start, when what was lost last was there
	}{
		{"it holds all", []event{stored(e, 10, 0), stored(e, 12, 1)}, 0, 0, 0},
		{"it was empty at first", []event{stored(0, 0, 0), stored(e, 10, 1)}, 0, 0, 0},
		{"it lost all", []event{stored(e, 10, 0), stored(0, 0, 1)}, 1, 10, 0},
		{"it lost all and began a new key: one loss", []event{stored(e, 10, 0), stored(0, 0, 1), stored(anew, 3, 2)}, 1, 10, 0},
		{"it began a new key at once", []event{stored(e, 10, 0), stored(anew, 3, 1)}, 1, 10, 0},
		{"it lost all twice", []event{stored(e, 10, 0), stored(anew, 3, 1), stored(0, 0, 2)}, 2, 13, 1},
		{"its clock stepped back", []event{stored(e, 10, 0), stored(e+999, 3, 1)}, 0, 0, 0},
		{"a peer returns what it lost before we started", []event{ownState, stored(anew, 3, 1)}, 1, 10, 1},
		{"admitted while it was away", []event{
			func(l *ledger.Ledger, _ *fakeClock) { l.Local(&pairLimit, 7, startUS) }, stored(0, 0, 1),
		}, 0, 0, 0},
		// 90 s after its bucket began, which is 60 s long: what came after its first 30 s is left.
		{"half of it had faded", []event{stored(e, 5, 0), stored(e, 10, 30_000_000), stored(0, 0, 80_000_000)}, 1, 5, 30_000_000},
		{"all of it had", []event{stored(e, 10, 0), stored(0, 0, 110_000_000)}, 0, 0, 0},
	} {
		clock, metrics := &fakeClock{}, meters.New()
		there := startUS
		l := newLedger(t, clock, func(o *ledger.Options) {
			o.Meter = metrics.Meter
			o.Lost = func(us int64) { there = us }
		})
		for _, happen := range row.events {
			happen(l, clock)
		}
		losses, units := int64(metrics.Of(t, "regiond.sync.losses")), int64(metrics.Of(t, "regiond.sync.lost_units"))
		if losses != row.losses || units != row.units {
			t.Errorf("%s: %d losses of %d units, want %d of %d", row.name, losses, units, row.losses, row.units)
		}
		if there -= startUS; there != row.there {
			t.Errorf("%s: what is lost was there at %d µs, want %d", row.name, there, row.there)
		}
	}
}

// UsageStats has the sum of all estimates once every shard was swept, of limits in force.
func TestUsageStats(t *testing.T) {
	clock := &fakeClock{}
	l := newLedger(t, clock, func(o *ledger.Options) {
		o.Limit = func(name string) (int64, bool) { return 600, name != "b.gone" }
	})
	bucket := startUS / pairLimit.WindowUS
	gone := pairLimit
	gone.ID, gone.Limit = hash(1000), "b.gone"
	mustFold(t, l, "us-east", startUS, 0, one(gone, bucket, 1, 5))
	for i := range 200 {
		s := pairLimit
		s.ID = hash(i)
		mustFold(t, l, "us-east", startUS, 0, one(s, bucket, 1, int64(i)))
		if i%3 == 0 {
			mustFold(t, l, "ap-south", startUS, 0, one(s, bucket, 1, 10))
		}
		if i%2 == 0 {
			l.Local(&s, 7, startUS)
		}
	}
	if n := len(l.UsageStats()); n != 0 {
		t.Errorf("%d limits are counted before a sweep", n)
	}
	const later = 60*time.Second + 100*time.Millisecond // some of it has faded
	clock.advance(later)
	sweep(l)
	var us, ap, own int64
	for i := range 200 {
		us += estimate(l, hash(i), "us-east", later)
		ap += estimate(l, hash(i), "ap-south", later)
		lost, _ := l.Estimates(hash(i), pairLimit.WindowUS, quota.MaxCounter, later, nil)
		own += lost // all of ours was local
	}
	if us == 0 || ap == 0 || own == 0 {
		t.Fatalf("nothing is left to compare: %d %d %d", us, ap, own)
	}
	all := l.UsageStats()
	if len(all) != 1 || all[0].Limit != pairLimit.Limit || all[0].Partitions != 200 {
		t.Fatalf("the stats are %+v, want 200 partitions of %s", all, pairLimit.Limit)
	}
	if u := all[0].Units; u["us-east"] != us || u["ap-south"] != ap || u["eu-west"] != own {
		t.Errorf("the stats have %v, the estimates come to us-east %d, ap-south %d, eu-west %d", u, us, ap, own)
	}
	clock.advance(2 * time.Minute)
	sweep(l)
	if all := l.UsageStats(); len(all) != 0 {
		t.Errorf("after all has ended the stats are %+v", all)
	}
}
