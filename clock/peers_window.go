package clock

import (
	"errors"
	"fmt"
	"time"
)

// exchange is one question to a peer and its answer, in µs since the epoch:
//
//	peer's store      T2 ──── T3
//	                 ╱          ╲
//	our store      T1            T4
//
// However the time on the way is divided, the question took at least nothing
// and so did the answer: the peer's clock is ahead of ours by at least T3 − T4
// and at most T2 − T1. The middle of the two is the usual
// ((T2−T1) + (T3−T4)) / 2, half their distance is half the time on the way.
type exchange struct{ T1, T2, T3, T4 int64 }

// offsets returns what one exchange leaves possible, at its end: widened by what
// the two clocks may drift apart between T1 and T4, and by their resolution.
func (e exchange) offsets() (interval, error) {
	for _, t := range []int64{e.T1, e.T2, e.T3, e.T4} {
		if t < 0 || t > latestUS {
			return interval{}, fmt.Errorf("TIME must be between the years 1970 and 2112, is %d µs", t)
		}
	}
	if e.T4 < e.T1 || e.T3 < e.T2 {
		return interval{}, errors.New("a clock went back in the middle of it")
	}
	i := interval{lo: time.Duration(e.T3-e.T4) * tick, hi: time.Duration(e.T2-e.T1) * tick}
	i = i.widened(tick + drifted(time.Duration(e.T4-e.T1)*tick))
	if i.lo >= i.hi {
		return interval{}, fmt.Errorf("the peer says it took %d µs to answer, all in all it took %d", e.T3-e.T2, e.T4-e.T1)
	}
	return i, nil
}

// drifted is how far two stores' clocks may drift apart in d: each of them has
// the allowance for itself.
func drifted(d time.Duration) time.Duration {
	b := belief{maxDrift: 2 * DefaultMaxDrift}
	return b.drifted(d)
}

// peerWindowSize is how many exchanges are believed. Whatever a clock has done,
// however little, is forgotten after as many.
const peerWindowSize = 8

// evidence is what one exchange has left possible.
type evidence struct {
	at       time.Duration // on the local monotonic clock, of its end
	possible interval
}

// peerWindow has the last exchanges with one peer. It is arithmetic, and not
// safe for concurrent use.
type peerWindow struct {
	ring [peerWindowSize]evidence
	n    int // exchanges so far
}

// add takes in one more. When it leaves nothing possible of what was known, a
// clock has been moved, and what came before says nothing any more.
func (w *peerWindow) add(e evidence) {
	if w.n > 0 {
		e.at = max(e.at, w.newest().at) // two that arrived at once may come in any order
		if known, _ := w.known(e.at); !known.meets(e.possible) {
			w.n = 0
		}
	}
	w.ring[w.n%peerWindowSize] = e
	w.n++
}

// newest is the exchange that came last; there must be one.
func (w *peerWindow) newest() evidence { return w.ring[(w.n-1)%peerWindowSize] }

// known is what all exchanges in the window leave possible together, now, and
// how many they are; there must be one. A quick one says more than a slow one
// and so counts more by itself. They all meet, as add has seen to it: each was
// compared with all before it, and time only widens.
func (w *peerWindow) known(now time.Duration) (interval, int) {
	samples := min(w.n, peerWindowSize)
	last := w.newest()
	known := last.possible.widened(drifted(max(0, now-last.at)))
	for back := 2; back <= samples; back++ {
		e := w.ring[(w.n-back)%peerWindowSize]
		known = known.and(e.possible.widened(drifted(max(0, now-e.at))))
	}
	return known, samples
}
