package limitertest

import (
	"math/rand/v2"
	"testing"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/test/oracle"
)

func clockLedgers() []ledger {
	return []ledger{
		{"a small step back", one(logOf(2, 1000)), `
			0    c 1 = a 1 0 1000
			500  c 1 = a 0 0 1000
			300  c 1 = d 0 500 1000  // the clock goes on from 500
			499  c 1 = d 0 301 801
			799  c 1 = d 0 1 501
			800  c 1 = a 0 0 1000    // at 1000 by its clock
			1999 c 2 = a 0 0 1000    // at 2199
			2998 c 1 = d 0 1 1
			3199 c 1 = a 1 0 1000    // at 3199: nothing was used by time either, so it is time again`},
		{"an hour back, and another", one(logOf(2, 1000)), `
			0              c 2 = a 0 0 1000
			-3_600_000_000 c 1 = d 0 1000 1000
			-3_599_999_001 c 1 = d 0 1 1
			-3_599_999_000 c 1 = a 1 0 1000  // one window later, not an hour
			-3_599_998_500 c 1 = a 0 0 1000
			-7_200_000_000 c 1 = d 0 500 1000
			-7_199_999_500 c 1 = a 0 0 1000
			10_000         c 1 = a 1 0 1000`},
		{"a step back before anything is charged again", one(logOf(5, 1000)), `
			0     c 5 = a 0 0 1000
			-5000 c 1 = d 0 1000 1000
			-2_005_000 c 1 = d 0 1000 1000
			-2_004_500 c 1 = d 0 500 500
			-2_004_000 c 5 = a 0 0 1000
			-2_003_001 c 1 = d 0 1 1
			-2_003_000 c 5 = a 0 0 1000`},
		{"less than a second more is waited out", one(logOf(5, 1000)), `
			0     c 5 = a 0 0 1000
			-5000 c 1 = d 0 1000 1000
			-9000 c 1 = d 0 5000 5000
			-8500 c 1 = d 0 4500 4500
			-4001 c 1 = d 0 1 1
			-4000 c 5 = a 0 0 1000`},
		{"an hour forward, and back", one(logOf(2, 1000)), `
			0              c 2 = a 0 0 1000
			3_600_000_000  c 2 = a 0 0 1000
			100            c 1 = d 0 1000 1000
			1099           c 1 = d 0 1 1
			1100           c 1 = a 1 0 1000`},
		{"a peek does not note a step, a denial does", one(logOf(2, 1000)), `
			0     c 2 = a 0 0 1000
			-5000 p 1 = d 0 1000 1000
			-4000 p 1 = d 0 1000 1000
			-4000 c 1 = d 0 1000 1000
			-3500 p 1 = d 0 500 500
			-3000 p 1 = a 2 0 0`},
		{"counters step back too", one(windowOf(4, 1000), gcraOf(4, 1000, 0)), `
			500      c 4 = a 0 0 1500 | 0 0 1000
			-100_000 c 1 = d 0 750 1500 | 0 250 1000
			-99_750  c 1 = d 0 500 1250 | 1 0 750
			-99_251  c 1 = d 0 1 751 | 2 0 251
			-99_250  c 1 = a 0 0 1750 | 2 0 500`},
		{"an old entry that says more than a time", one(global(logOf(3, 1000))), `
			0    c 1 @2 = a 1 0 1000
			-100 c 1 @2 = a 0 0 1000  // at 0, and says by how much the clock was behind
			1500 c 1 @2 = a 1 0 1000
			1600 c 1 @2 = a 0 0 1000
			2550 c 1 @2 = a 0 0 1000`},
		{"the same microsecond, many times", one(logOf(5, 1000)), `
			7    c 1 = a 4 0 1000
			7    c 1 = a 3 0 1000
			7    c 2 = a 1 0 1000
			7    c 1 = a 0 0 1000
			7    c 1 = d 0 1000 1000
			1006 c 5 = d 0 1 1
			1007 c 5 = a 0 0 1000`},
	}
}

// oscillate asks for all it can get, every millisecond for half a minute, from a
// store whose time swings between two rates of lateness 400 ms apart, and counts
// by true time. An honest clock admits at most L(⌊S/W⌋+1) in a stretch S; this
// one may gain one swing on it, once, and not one with each swing.
func oscillate(t *testing.T, newStore New) {
	const (
		units, window  = int64(10), int64(1_000_000)
		swing, stretch = int64(400_000), int64(30_000_000)
	)
	store, now := newStore(t)
	q := Ask(logOf(units, window))
	random := rand.New(rand.NewPCG(1, 2))
	var all []oracle.Admission
	late := int64(0)
	for honest := int64(0); honest < stretch; honest += 5000 {
		if random.IntN(20) == 0 {
			late = swing - late
		}
		now(Epoch + honest - late)
		if decide(t, store, q.Call("acme", limiter.OpCheck, 1, nil))[0].Outcome == oracle.Admitted {
			all = append(all, oracle.Admission{US: honest, Cost: 1})
		}
	}
	for _, s := range []int64{window, 3 * window, stretch} {
		if worst, ok := oracle.Window(all, units*((s+swing)/window+1), s); !ok {
			t.Errorf("%d units in %d µs of true time", worst.Units, s)
		}
	}
	if least := units * (stretch/window - 2); int64(len(all)) < least {
		t.Errorf("%d units in all, an honest clock gives at least %d", len(all), least)
	}
}
