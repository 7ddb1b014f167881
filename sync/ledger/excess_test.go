package ledger_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// A peer counts at most the limit, whatever it claims, also where that is shown or forwarded, and
// what it claims has faded one window later as if it had claimed no more.
func TestPeerCountsAtMostTheLimit(t *testing.T) {
	const most = 600
	var claimed, ended int64
	clock := &fakeClock{}
	l := newLedger(t, clock, func(o *ledger.Options) {
		o.Most = func(string, int64) int64 { return most }
		o.Excess = func(region, limit string, units int64) {
			if region != "us-east" || limit != pairLimit.Limit {
				t.Errorf("%s, %s", region, limit)
			}
			claimed += units
		}
		o.Overshoot = func(_ string, units, _ int64) { ended = units }
	})
	estimate := func(at time.Duration) int64 {
		out := make([]int64, 8)
		l.Estimates(pairLimit.ID, pairLimit.WindowUS, most, at, out)
		return out[l.Region("us-east")]
	}
	length := pairLimit.WindowUS
	bucket := startUS / length
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, startUS, 500))
	if n := estimate(0); n != 500 || claimed != 0 {
		t.Errorf("an honest region counts %d, %d too many", n, claimed)
	}
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, startUS, 700))
	if n := estimate(0); n != most || claimed != 100 {
		t.Errorf("700 count as %d, %d too many", n, claimed)
	}
	for i := range int64(40) { // each of them as if the key had been lost and made again
		mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, startUS+i*1_000_000, 1_000_000))
	}
	if n := estimate(0); n != most || claimed != 40_000_000-most {
		t.Errorf("40 generations of a million count as %d, %d too many", n, claimed)
	}
	forwarded := int64(0)
	for groups := range l.Live("us-east", 0, 100) {
		for _, units := range groups[0].Units {
			forwarded += units
		}
	}
	if sweep(l); forwarded != most || l.UsageStats()[0].Units["us-east"] != most {
		t.Errorf("%d are forwarded, %v shown", forwarded, l.UsageStats())
	}
	// In the next window the bucket fades as it grew, all at once ten seconds after it began; what is left is held to the limit.
	end := time.Duration((bucket+1)*length-startUS) * time.Microsecond
	for after, want := range map[time.Duration]int64{9 * time.Second: most, 11 * time.Second: 0} {
		if n := estimate(end + after); n != want {
			t.Errorf("%v after the end of theirs they count as %d, want %d", after, n, want)
		}
	}
	if n := estimate(end + time.Duration(length)*time.Microsecond); n != 0 {
		t.Errorf("a window after the end %d are left", n)
	}
	clock.advance(end + time.Duration(length)*time.Microsecond)
	if sweep(l); ended != most {
		t.Errorf("the window ended with %d", ended)
	}
}

// What reports, resets, a store that is away and one that lost its data let a region use beyond
// the limit is not published. So a peer finds no excess in what two honest processes of a region
// send, and counts all that it may count.
func TestHonestRegionClaimsAtMostTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 600
		clock := &fakeClock{}
		claimed := func(region, _ string, units int64) { t.Fatalf("%d units of %s are excess", units, region) }
		start := func(self string, boot int64) *ledger.Ledger {
			return newLedger(t, clock, func(o *ledger.Options) {
				o.Self, o.Boot, o.Most, o.Excess = self, boot, func(string, int64) int64 { return most }, claimed
			})
		}
		ours := []*ledger.Ledger{start("eu-west", startUS), start("eu-west", startUS+5_000_000)}
		peer, third := start("us-east", startUS), start("ap-south", startUS)
		bucket := startUS / pairLimit.WindowUS
		number, used := uint64(0), map[int64]int64{}
		deliver := func(from *ledger.Ledger, groups []wire.Group) {
			for _, l := range []*ledger.Ledger{ours[0], ours[1], peer, third} {
				if l != from {
					mustFold(t, l, "eu-west", startUS, 0, groups)
				}
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "process")
			units := rapid.Int64Range(1, 900).Draw(t, "units")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1: // charged in the store, by a check or a report
				generation := startUS - rapid.SampledFrom([]int64{9_000_000, 9_000_000, 3_000_000}).Draw(t, "generation")
				used[generation] += units
				ours[i].Record(&pairLimit, quota.Counter{Bucket: bucket, Generation: generation, Units: used[generation]}, quota.Gauge{}, startUS)
			case 2: // charged while the store is away
				used[int64(i)] += units
				ours[i].Local(&pairLimit, units, startUS)
			case 3: // a region that joins is sent all, and forwards it
				for groups := range ours[i].Live("eu-west", 0, 9) {
					deliver(ours[i], groups)
				}
				for groups := range peer.Live("eu-west", 0, 9) {
					mustFold(t, third, "eu-west", startUS, 0, groups)
				}
			default:
			}
			number++
			deliver(ours[i], ours[i].Take(9, true, number))
		}
		sum := int64(0)
		for _, units := range used {
			sum += units
		}
		out := make([]int64, 8)
		peer.Estimates(pairLimit.ID, pairLimit.WindowUS, most, 0, out)
		if n := out[peer.Region("eu-west")]; n != min(sum, most) {
			t.Fatalf("%d of %d units count", n, sum)
		}
	})
}

// A process with the key that speaks for our own region gets no further than one that speaks
// for another.
func TestForgedSiblingClaimsAtMostTheLimit(t *testing.T) {
	const most = 600
	var claimed int64
	l := newLedger(t, &fakeClock{}, func(o *ledger.Options) {
		o.Most = func(string, int64) int64 { return most }
		o.Excess = func(_, _ string, units int64) { claimed += units }
	})
	bucket := startUS / pairLimit.WindowUS
	l.Record(&pairLimit, quota.Counter{Bucket: bucket, Generation: startUS, Units: 100}, quota.Gauge{}, startUS)
	for i := range int64(40) {
		mustFold(t, l, "eu-west", startUS, 0, one(pairLimit, bucket, startUS-i*1_000_000, 1_000_000))
	}
	out := make([]int64, 8)
	lost, _ := l.Estimates(pairLimit.ID, pairLimit.WindowUS, most, 0, out)
	if out[0] > most+100 || lost > most || claimed < 39_000_000 {
		t.Errorf("our own region counts %d, of which %d are lost; %d are excess", out[0], lost, claimed)
	}
}
