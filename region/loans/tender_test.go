package loans_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/sync/wire"
)

// TestCut: what was lent before a cut is neither side's while it lasts, and all of it is one's twenty seconds later.
func TestCut(t *testing.T) {
	w := newWorld(t, 1, 2, 100, time.Hour)
	used := int64(0)
	ask := func() {
		if w.rng.IntN(100) == 0 && w.ask(0, "t") {
			used++
		}
	}
	room := func() (n int64) {
		for _, r := range w.regions {
			b := r.book(&quota.CounterKey{Tenant: "t"})
			n += b.Room(r.us(), b.used(w.now+r.ahead, w.window))
		}
		return n
	}
	w.advance(25*time.Second, ask)
	cut := func(yes bool) { w.cut[[2]int{0, 1}], w.cut[[2]int{1, 0}] = yes, yes }
	cut(true)
	w.advance(time.Minute, nil)
	if n := room(); n == 100-used || used == 0 {
		t.Errorf("with %d used there is room for %d while loans of the cut region are over", used, n)
	}
	cut(false)
	w.advance(20*time.Second, nil)
	if n := room(); n != 100-used || w.worst > 100 {
		t.Errorf("with %d of 100 used there is room for %d", used, n)
	}
}

// TestLongWindow: of a limit with 31 cuts of a minute in each window at least 95 % are used, though at most an eighth is at any
// time lent and not used.
func TestLongWindow(t *testing.T) {
	longWindow(t, 12*time.Hour, 500*time.Millisecond, 1)
	longWindow(t, 12*time.Hour, 500*time.Millisecond, 3)
}

// TestLongWorldOfAMonth is the same with a window of 31 days, which is cut for a minute a day.
func TestLongWorldOfAMonth(t *testing.T) {
	t.Parallel()
	longWindow(t, 31*24*time.Hour, 5*time.Second, 1)
}

func longWindow(t *testing.T, window, step time.Duration, asking int) {
	t.Helper()
	const units, cuts = 600, 31
	w := newWorld(t, 1, 3, units, window)
	w.step = step
	idle, admitted := int64(0), int64(0)
	ask := func() {
		if w.rng.Float64() < 1.2*units*float64(w.step)/float64(window) && w.ask(w.rng.IntN(asking), "t") {
			admitted++
		}
	}
	for n := range cuts {
		w.advance(window/cuts-time.Minute, ask)
		for _, r := range w.regions {
			b := r.book(&quota.CounterKey{Tenant: "t"})
			idle = max(idle, min(b.Borrowed(r.us(), 0), b.Slack(r.us(), b.used(w.now+r.ahead, window))))
		}
		cut := func(yes bool) {
			for other := range 3 {
				w.cut[[2]int{n % 3, other}], w.cut[[2]int{other, n % 3}] = yes, yes
			}
		}
		cut(true)
		w.advance(time.Minute, ask)
		cut(false)
	}
	t.Logf("%d of 3 regions ask: %d of %d used in %v, at most %d lent and not used", asking, admitted, units, window, idle)
	if 100*admitted < 95*units || idle > units/8 || w.worst > units {
		t.Errorf("%d of 3 regions ask: of %d in %v %d are used, at most %d in one window, and %d lent and not used", asking, units, window, admitted, w.worst, idle)
	}
}

// TestFewUnitsStay: the only unit of a region is not lent for four windows after it was asked for any, though it is idle and
// another region is denied; then it is.
func TestFewUnitsStay(t *testing.T) {
	w := newWorld(t, 1, 2, 2, time.Minute)
	w.ask(0, "acme")
	w.advance(200*time.Second, nil)
	got := 0
	other := func() {
		if w.now%time.Second == 0 && w.ask(1, "acme") {
			got++
		}
	}
	w.advance(30*time.Second, other)
	if got != 1 || !w.ask(0, "acme") {
		t.Errorf("of 2 units the other region used %d, or the first one has none", got)
	}
	w.advance(4*time.Minute, other)
	got = 0
	if w.advance(time.Minute, other); got != 2 {
		t.Errorf("after four windows the other region uses %d of 2 units in one", got)
	}
}

// TestReturnAfterACut: what is returned while the lender is cut off arrives when it is back, however long the window is.
func TestReturnAfterACut(t *testing.T) {
	w := newWorld(t, 1, 2, 30, 31*24*time.Hour)
	w.step = 50 * time.Millisecond
	lender, b := w.regions[0], w.regions[1]
	w.ask(0, "acme")
	w.advance(2*time.Second, func() { b.ask(b.nodes[0], "acme", 31) }) // borrows, and uses none of it
	lent := func() (n int64) {
		for _, l := range lender.books["acme"].Lent {
			n += l.Left()
		}
		return n
	}
	before := lent()
	cut := func(is bool) { w.cut[[2]int{0, 1}], w.cut[[2]int{1, 0}] = is, is }
	cut(true)
	w.advance(20*time.Minute, nil)
	cut(false)
	w.advance(30*time.Minute, nil)
	if before == 0 || lent() != 0 {
		t.Errorf("%d units were lent and not used, and after a cut %d are", before, lent())
	}
}

// TestOneRegionGetsAll: a region that asks for all of the limit gets nearly all of it, though
// its share is a third and the others never met the tenant.
func TestOneRegionGetsAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 3, 600, 10*time.Second)
	admitted := 0
	w.advance(30*time.Second, func() {
		if w.ask(0, "acme") && w.now > 20*time.Second {
			admitted++
		}
	})
	if w.worst > 600 || admitted < 585 {
		t.Errorf("%d of 600 in the last window, %d in the worst", admitted, w.worst)
	}
}

// TestAMonthIsUsedWhereItIsAsked: a region that is asked alone has what the others do not use of a month, a little at a time. What it
// needs no more goes to the one that is asked next. Once nothing is asked for, what is lent costs next to nothing.
func TestAMonthIsUsedWhereItIsAsked(t *testing.T) {
	t.Parallel()
	const units = 3000
	w := newWorld(t, 1, 3, units, 31*24*time.Hour)
	for _, r := range w.regions {
		r.limit.Algorithm = quota.CalendarPeriods
		r.limit.Calendar = &quota.Calendar{Unit: quota.CalendarMonth, Anchor: 1, Zone: time.UTC}
	}
	var admitted [3]int
	ask := func(i int) func() {
		return func() {
			if w.rng.IntN(5) == 0 && w.ask(i, "acme") {
				admitted[i]++
			}
		}
	}
	for admitted[0] < 2000 && w.now < time.Hour {
		w.advance(time.Second, ask(0))
	}
	took := w.now
	w.advance(took, ask(1))
	t.Logf("%v of %d units were admitted, the first region's in %v", admitted, units, took)
	if took > 5*time.Minute || admitted[0]+admitted[1] < units*99/100 || w.worst > units {
		t.Errorf("%v of %d units were admitted, the first region's in %v; all had %d", admitted, units, took, w.worst)
	}
	w.advance(10*time.Minute, nil)
	calls := w.calls
	w.advance(10*time.Minute, nil)
	if calls = w.calls - calls; calls > 30 {
		t.Errorf("%d calls in ten idle minutes", calls)
	}
}

// TestOverridesCannotBeRead: nothing is lent while it is not known what a tenant has, and all is once it is.
func TestOverridesCannotBeRead(t *testing.T) {
	w := newWorld(t, 1, 3, 30, time.Minute)
	got := 0
	ask := func() {
		if w.ask(0, "x") {
			got++
		}
	}
	for _, r := range w.regions[1:] {
		r.blind = true
	}
	w.advance(3*time.Second, ask)
	if got != 10 {
		t.Errorf("it got %d units, its share is 10", got)
	}
	for _, r := range w.regions {
		r.blind = false
	}
	w.advance(3*time.Second, ask)
	if got != 30 {
		t.Errorf("it got %d of 30 within three seconds", got)
	}
}

// Regions that never met a partition hear what it is from a later want, if the first was lost or sent before they began.
func TestNotHeardAtFirst(t *testing.T) {
	w := newWorld(t, 1, 3, 10, time.Minute)
	got := 0
	ask := func() {
		if w.ask(0, "x") {
			got++
		}
	}
	for _, to := range []int{1, 2} {
		w.cut[[2]int{0, to}] = true
	}
	w.advance(2*time.Second, ask)
	clear(w.cut)
	w.advance(3*time.Second, ask)
	if got < 10 {
		t.Errorf("it got %d of 10 within three seconds", got)
	}
}

// TestBoundHolds drives three regions, cuts, restarts and lost stores at random.
func TestBoundHolds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		w := newWorld(t, seed+1, 3, 60, 2*time.Second)
		dice := rand.New(rand.NewPCG(seed, 9))
		rates := []float64{0.1, 0.1, 0.1}
		asked, admitted := 0, 0
		w.advance(60*time.Second, func() {
			if dice.Float64() < 0.002 {
				w.cut[[2]int{dice.IntN(3), dice.IntN(3)}] = dice.Float64() < 0.5
			}
			r := w.regions[dice.IntN(3)]
			switch x := dice.Float64(); {
			case x < 0.0005: // the only process begins anew
				r.nodes = nil
				r.start()
				r.store.Epoch++
			case x < 0.001 && len(r.nodes) < 3:
				r.start()
			case x < 0.0013: // the store lost all
				r.books = map[string]*kept{}
				r.store.Epoch, r.store.Lost = r.store.Epoch+1, r.us()
			case x < 0.002:
				r.away = !r.away
			case x < 0.005:
				rates[dice.IntN(3)] = dice.Float64() * 0.6
			}
			for i := range w.regions {
				if dice.Float64() < rates[i] {
					asked++
					if w.ask(i, "acme") {
						admitted++
					}
				}
			}
		})
		t.Logf("seed %d: %d asked, %d admitted, %d in the worst window of 60", seed+1, asked, admitted, w.worst)
		if w.worst > 60 || w.worst < 55 {
			t.Errorf("seed %d: %d in the worst window of 60", seed+1, w.worst)
		}
	}
}

// TestSiblings: of three processes one tends, by what all of them charge; each sees a third
// of the traffic. Two at once, that do not know each other, stay within the bound.
func TestSiblings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 3, 600, 10*time.Second)
	w.regions[0].start()
	w.regions[0].start()
	admitted := 0
	each := func() {
		if w.ask(0, "acme") && w.now > 20*time.Second {
			admitted++
		}
	}
	w.advance(30*time.Second, each)
	if w.worst > 600 || admitted < 570 {
		t.Errorf("%d of 600 in the last window, %d in the worst", admitted, w.worst)
	}
}

// TestOnlyOneIsAsked: the process whose turn it is never gets a request, and another tends in
// its place.
func TestOnlyOneIsAsked(t *testing.T) {
	t.Parallel()
	for busy := range 3 {
		w := newWorld(t, 1, 3, 600, 10*time.Second)
		w.regions[0].start()
		w.regions[0].start()
		admitted := 0
		w.advance(30*time.Second, func() {
			if w.regions[0].ask(w.regions[0].nodes[busy], "acme", 1) && w.now > 20*time.Second {
				admitted++
			}
		})
		if w.worst > 600 || admitted < 570 {
			t.Errorf("process %d: %d of 600 in the last window, %d in the worst", busy, admitted, w.worst)
		}
	}
}

// TestIdleCostsNothing: no call and no message for partitions that have plenty, nor for those
// that were short once and have no loan any more.
func TestIdleCostsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 3, 600, time.Second)
	for i := range 1000 {
		w.ask(0, fmt.Sprint("tenant-", i))
	}
	w.advance(time.Second, nil)
	if w.calls > 0 || len(w.flying) > 0 {
		t.Errorf("%d calls and %d messages for partitions with plenty", w.calls, len(w.flying))
	}
	w.advance(3*time.Second, func() { w.ask(0, "acme") })
	w.advance(20*time.Second, nil)
	before := w.calls
	if before == 0 {
		t.Error("a partition that was short is not tended")
	}
	w.advance(5*time.Second, nil)
	if w.calls > before || len(w.flying) > 0 {
		t.Errorf("%d calls and %d messages after all loans are over", w.calls-before, len(w.flying))
	}
}

// TestEvictedIsSafe: with room for two partitions, of which one is tended, ten that are all
// short stay within their bounds.
func TestEvictedIsSafe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 3, 60, time.Second)
	w.most = 2
	for _, r := range w.regions {
		r.nodes = nil
		r.start()
	}
	w.advance(20*time.Second, func() {
		for i := range 10 {
			w.ask(w.rng.IntN(3), fmt.Sprint("tenant-", i))
		}
	})
	if w.worst > 60 || w.worst < 50 {
		t.Errorf("%d in the worst window of 60", w.worst)
	}
}

// TestRolledBack: the store of a region that has lent goes back to what it had up to a second before, as a failover
// may have it, and that region then uses all that its store leaves it.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		w := newWorld(t, seed+1, 2, 60, 10*time.Second)
		dice, lender, key := rand.New(rand.NewPCG(seed, 9)), w.regions[0], quota.CounterKey{Tenant: "acme"}
		w.advance(time.Duration(dice.IntN(1000))*time.Millisecond, func() { w.ask(1, "acme") })
		before := lender.book(&key).State
		before.Lent, before.Held = slices.Clone(before.Lent), slices.Clone(before.Held)
		w.advance(time.Second, func() { w.ask(1, "acme") })
		lent := func() (n int64) {
			for _, l := range lender.book(&key).Lent {
				n += l.Left()
			}
			return n
		}
		had := lent()
		if lender.book(&key).State = before; had == lent() {
			continue
		}
		w.advance(1100*time.Millisecond, func() { w.ask(1, "acme") })
		w.advance(20*time.Second, func() { w.ask(0, "acme"); w.ask(1, "acme") })
		if w.worst > 60 || lender.store.Lost == 0 {
			t.Errorf("seed %d: %d of %d units lent are forgotten: lost at %d, %d in the worst window of 60", seed+1, had-lent(), had, lender.store.Lost, w.worst)
		}
	}
}

// TestStop: the last process of a region returns what it can.
func TestStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 3, 600, 10*time.Second)
	w.advance(5*time.Second, func() { w.ask(0, "acme") })
	key := quota.CounterKey{Tenant: "acme"}
	w.regions[0].books["acme"].log = nil // all that was used has aged
	if len(w.regions[0].book(&key).Held) == 0 {
		t.Fatal("nothing was borrowed")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.regions[0].nodes[0].Run(ctx); err != nil {
		t.Fatal(err)
	}
	w.regions[0].nodes = nil
	for _, h := range w.regions[0].book(&key).Held {
		if h.Left() > 0 {
			t.Errorf("%d units of %s are still held", h.Left(), h.Peer)
		}
	}
	w.advance(time.Second, nil)
	for _, r := range w.regions[1:] {
		for _, l := range r.book(&key).Lent {
			if l.Left() > 0 {
				t.Errorf("%s has not received %d units back", r.name, l.Left())
			}
		}
	}
}

// TestBytesPerPartition: what a partition costs that is asked for and has plenty.
func TestBytesPerPartition(t *testing.T) {
	const n = 100_000
	w := newWorld(t, 1, 3, 600, time.Second)
	tender := w.regions[0].nodes[0]
	before := heap()
	for i := range n {
		key := w.regions[0].partition(fmt.Sprintf("tenant-%06d", i))
		key.Partition = "user:2.42:"
		tender.Asked(rand.Uint64(), &key, loan.Ask{Units: 1, Charged: true, Remaining: 199, Ceiling: 200, Share: 200})
	}
	bytes := (heap() - before) / n
	t.Logf("%d bytes for each active partition", bytes)
	if bytes > 400 {
		t.Errorf("an active partition takes %d bytes", bytes)
	}
	runtime.KeepAlive(tender)
}

// TestAnotherWindow: while a reload has reached one region and not the other, these do not lend to each other. A loan is used for
// longer under the longer window than its record stands under the shorter one, of which no window may hold more than B.
func TestAnotherWindow(t *testing.T) {
	w := newWorld(t, 1, 2, 30, 20*time.Second)
	a, b := w.regions[0], w.regions[1]
	a.per(time.Second)
	w.window = time.Second
	lent := func() (n int64) {
		for _, l := range a.books["acme"].Lent {
			n += l.Left()
		}
		return n
	}
	spend := func(i int) {
		for w.ask(i, "acme") {
		}
	}
	w.ask(0, "acme")
	borrow := func() { b.ask(b.nodes[0], "acme", 31) } // and use none of it
	w.advance(2*time.Second, borrow)
	if lent() > 0 {
		t.Errorf("%d units are lent to a region with another window", lent())
	}
	cut := func(is bool) { w.cut[[2]int{0, 1}], w.cut[[2]int{1, 0}] = is, is }
	cut(true)
	for range 12 {
		w.advance(2*time.Second, nil)
		spend(1)
		spend(0)
	}
	cut(false)
	if w.worst > 30 {
		t.Errorf("%d units are admitted in a second, want 30", w.worst)
	}
	b.per(time.Second)
	w.advance(2*time.Second, borrow)
	if lent() == 0 {
		t.Error("nothing is lent once both have the same window")
	}
}

// TestAnotherMaxTTL: a reload that changes max_ttl loses nothing, although what was lent has just come back: a record of which all
// was returned goes when its grant is over.
func TestAnotherMaxTTL(t *testing.T) {
	for _, maxTTL := range [][2]time.Duration{{time.Minute, 2 * time.Minute}, {2 * time.Minute, time.Minute}, {time.Second, time.Hour}} {
		w := newWorld(t, 1, 2, 60, time.Minute)
		a, b := w.regions[0], w.regions[1]
		a.holds(maxTTL[0])
		b.holds(maxTTL[0])
		w.advance(2*time.Second, func() { b.ask(b.nodes[0], "acme", 61) }) // which it never gets
		b.nodes[0].Leave()
		b.nodes = nil
		w.advance(time.Second, nil)
		if lent := a.books["acme"].Lent; len(lent) == 0 || loan.Left(lent, 0) > 0 {
			t.Fatalf("max_ttl %v: lent %+v, want a record of which all was returned", maxTTL, lent)
		}
		a.holds(maxTTL[1])
		w.advance(5*time.Second, func() { w.ask(0, "acme") })
		if a.store.Lost > 0 {
			t.Errorf("max_ttl %v: the region takes its data for lost", maxTTL)
		}
	}
}

// TestWantsWhileRedisIsAway: a region whose clock goes back sends wants that are older than its
// last. While none can be planned for, the newest alone is kept.
func TestWantsWhileRedisIsAway(t *testing.T) {
	w := newWorld(t, 1, 3, 600, time.Second)
	r := w.regions[0]
	r.away = true
	tender := r.nodes[0].Tender
	key := r.partition("acme")
	before := heap()
	for i := range 100_000 {
		tender.Receive(&wire.Loans{Wants: []wire.Want{{PartitionID: id(&key), Partition: &key, Want: loan.Want{From: "b", Epoch: 1, Time: int64(1_000_000 - i), Need: 1}}}})
		tender.Step(t.Context())
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("100,000 wants for one partition take %d bytes", after-before)
	}
	runtime.KeepAlive(tender)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestBurntRegionBorrows: a region that has lost its data admits within two seconds of the first request, from what the
// others have left: under a monthly limit as well, and before it has its own share again.
func TestBurntRegionBorrows(t *testing.T) {
	for _, window := range []time.Duration{10 * time.Second, 31 * 24 * time.Hour} {
		w := newWorld(t, 1, 3, 600, window)
		lost := w.regions[1]
		lost.lose()
		lost.books = map[string]*kept{}
		first := time.Duration(0)
		w.advance(10*time.Second, func() {
			if w.now%(200*time.Millisecond) == 0 && w.ask(1, "acme") && first == 0 {
				first = w.now
			}
		})
		if got := len(w.log["acme"]); first == 0 || first > 2*time.Second || got < 40 || got > 50 {
			t.Errorf("a window of %v: the first of %d is admitted after %v", window, got, first)
		}
	}
}

// TestBurntRegionHasItsPart: where more is asked for than there is, the others leave the region that has lost its data two
// thirds of its share, and have the rest. When the burn is over it has all of it. These are means of six runs.
func TestBurntRegionHasItsPart(t *testing.T) {
	const runs = 6
	var burnt, others, after int
	for seed := range uint64(runs) {
		w := newWorld(t, seed+1, 3, 600, 60*time.Second)
		var used [3]int
		ask := func() {
			for i := range used {
				if w.rng.IntN(50) == 0 && w.ask(i, "acme") { // 4 a second, of 3.3
					used[i]++
				}
			}
		}
		w.advance(70*time.Second, ask)
		w.regions[1].lose()
		w.regions[1].books = map[string]*kept{}
		w.advance(30*time.Second, ask)
		used = [3]int{}
		w.advance(60*time.Second, ask)
		burnt, others = burnt+used[1], others+used[0]+used[2]
		w.advance(30*time.Second, ask)
		used = [3]int{}
		w.advance(60*time.Second, ask)
		after += used[1]
		if w.worst > 600 {
			t.Errorf("run %d: %d in the worst window of 600", seed, w.worst)
		}
	}
	if burnt < 100*runs || burnt > 140*runs || others < 250*runs {
		t.Errorf("in a window while its share is burnt it used %d of 133, the others %d", burnt/runs, others/runs)
	}
	if after < 185*runs {
		t.Errorf("in a window after the burn it used %d of 200", after/runs)
	}
	t.Logf("burnt %d, the others %d; after the burn %d", burnt/runs, others/runs, after/runs)
}

// TestALargeCost: a region that is asked for the whole limit at once, and cannot get it, leaves the others most of what they are
// asked for, nine tenths of their shares.
func TestALargeCost(t *testing.T) {
	for _, units := range []int64{30, 600} {
		w := newWorld(t, 1, 3, units, 10*time.Second)
		var asked, admitted int64
		w.advance(3*time.Minute, func() {
			large := w.regions[0]
			if w.now%(300*time.Millisecond) == 0 {
				large.ask(large.nodes[0], "acme", units)
			}
			for i := 1; i <= 2; i++ {
				if w.rng.Int64N(2000) < units*3/10 { // a window has 2000 steps
					asked++
					if w.ask(i, "acme") {
						admitted++
					}
				}
			}
		})
		if admitted*100 < asked*75 || w.worst > units {
			t.Errorf("%d units: %d were asked for one by one, %d admitted, and %d in the worst window", units, asked, admitted, w.worst)
		}
		t.Logf("%d units: %d of %d", units, admitted, asked)
	}
}
