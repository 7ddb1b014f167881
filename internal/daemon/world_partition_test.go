package daemon

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestWorldPartitions: under share, whatever is cut, all regions together admit at
// most L, what the buckets forgot, and what was admitted before anyone could notice;
// at every moment. And each side with demand gets its part.
func TestWorldPartitions(t *testing.T) {
	const (
		units    = 600
		window   = 20 * time.Second
		noticing = 2500 * time.Millisecond
	)
	for _, row := range []struct {
		name  string
		pairs [][2]int // one way
		// sides are the groups that still hear each other and agree on it.
		sides [][]int
	}{
		{"whole cut, one and two", [][2]int{{0, 1}, {1, 0}, {0, 2}, {2, 0}}, [][]int{{0}, {1, 2}}},
		{"three apart", [][2]int{{0, 1}, {1, 0}, {0, 2}, {2, 0}, {1, 2}, {2, 1}}, [][]int{{0}, {1}, {2}}},
		{"one way", [][2]int{{0, 1}}, [][]int{{0}, {1}, {2}}},
		{"bridge", [][2]int{{0, 2}, {2, 0}}, [][]int{{0}, {1}, {2}}},
	} {
		inWorld(t, worldOf(units, window, ", global_buckets: 11"), func(w *world) {
			w.startAll()
			h := newTruth(w, units, window, window/10)
			rate := 4 * units / window.Seconds()
			asks := evenly(0.7*rate, 0.16*rate, 0.14*rate)
			h.drive(11, 3*window/2, 1, asks, nil) // the hot region holds most of the limit
			cutAt := w.now()
			for _, p := range row.pairs {
				w.cut(p[0], p[1], true)
			}
			worst := h.bounded(t, row.name, cutAt, noticing)
			h.drive(12, 2*window, 1, asks, worst.see)
			h.stale = tables(len(w.sites))
			h.drive(13, window, 1, asks, worst.see)
			for _, s := range w.sites {
				for h.ask(s.one(), 1).Allowed {
				}
			}
			h.sides(t, row.name, row.sides, row.pairs)
			for _, p := range row.pairs {
				w.cut(p[0], p[1], false)
			}
			healedAt := w.now()
			h.drive(14, window, 1, asks, worst.see)
			if !w.global() {
				t.Errorf("%s: not global %v after it healed", row.name, time.Duration(w.now()-healedAt)*time.Microsecond)
			}
			t.Logf("%-24s worst window %+.1f %% of L, of it beyond bias and what nobody could notice %+.1f %%", row.name, h.share(worst.over), h.share(worst.beyond))
		})
	}
}

// bound watches the promise of share.
type bound struct {
	t            *testing.T
	h            *truth
	name         string
	from, to     int64 // nobody could notice in between
	over, beyond int64
}

func (h *truth) bounded(t *testing.T, name string, cutAt int64, noticing time.Duration) *bound {
	return &bound{
		t: t, h: h, name: name, from: cutAt - worldLate.Microseconds(), to: cutAt + noticing.Microseconds(),
		over: -h.limit, beyond: -h.limit,
	}
}

// see is called after each check.
func (b *bound) see(_ *citizen, d quota.Decision) {
	if !d.Allowed {
		return
	}
	now := b.h.w.now()
	used := b.h.all(now)
	allowed := b.h.limit + b.h.judge.Between(max(b.from, now-b.h.windowUS()), min(b.to, now))
	allowed += b.h.judge.Between(now-worldLate.Microseconds(), now) // under way
	for _, forgotten := range b.h.blurred {
		allowed += forgotten
	}
	b.over, b.beyond = max(b.over, used-b.h.limit), max(b.beyond, used-allowed)
	if used > allowed {
		b.t.Errorf("%s: at %v all regions together used %d, and no more than %d are accounted for",
			b.name, time.Since(b.h.w.began), used, allowed)
	}
}

// sides checks that each group, once it has asked for all it can get, holds its
// parts of the limit, as far as the buckets let it know.
func (h *truth) sides(t *testing.T, name string, sides [][]int, cuts [][2]int) {
	t.Helper()
	part := h.limit / int64(len(h.w.sites))
	text := ""
	for _, side := range sides {
		used, stale := int64(0), int64(0)
		for _, i := range side {
			used += h.judge.Used(i, h.w.now())
			for k := range h.w.sites {
				if !slices.Contains(cuts, [2]int{k, i}) { // who is heard beyond his part is paid for
					stale += h.stale[i][k]
				}
			}
			if mode := h.w.sites[i].one().mode(); mode != quota.ModePartitioned {
				t.Errorf("%s: %s is in mode %v", name, h.w.sites[i].name, mode)
			}
		}
		claim := part * int64(len(side))
		text += fmt.Sprintf(" %v: %d of %d;", side, used, claim)
		if used < claim-stale {
			t.Errorf("%s: side %v asked for all and holds %d; its part is %d, and buckets remembered at most %d too long",
				name, side, used, claim, stale)
		}
	}
	t.Logf("%-24s each side with demand holds%s", name, text)
}
