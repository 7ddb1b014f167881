package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region/state"
)

const (
	// windowUnits is the bound of the worlds below, of which each region has a third.
	windowUnits = 30
	longWindow  = 20 * time.Second
)

// per writes another window of the limit into the file.
func (w *world) per(from, to time.Duration) {
	w.t.Helper()
	text := strings.Replace(w.text, "per: "+from.String()+",", "per: "+to.String()+",", 1)
	if text == w.text {
		w.t.Fatalf("no limit has a window of %v", from)
	}
	w.text = text
}

// borrow has a process borrow units and use none of them: it asks for more at once than it gets.
func (p *node) borrow() {
	p.w.t.Helper()
	p.w.await(p.home.name+" borrows", 5*time.Second, func() bool {
		_, terms := p.explained("acme")
		return terms.Bound.Borrowed >= windowUnits/3 || p.ask(windowUnits-1).Allowed
	})
}

// flood has every process use all that it may, again and again.
func (h *truth) flood(during time.Duration) {
	h.w.t.Helper()
	for began := time.Now(); time.Since(began) < during; time.Sleep(250 * time.Millisecond) {
		for _, p := range h.w.alive {
			for h.ask(p, 1).Allowed {
			}
		}
	}
}

func (w *world) stores() (all []loan.Store) {
	for _, p := range w.alive {
		all = append(all, p.replication.state.Store())
	}
	return all
}

// A longer window of a limit with a bound begins another epoch in each region. Else records of loans would end while units that
// were used under these loans are in the window still.
func TestLongWorldLongerWindow(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(windowUnits, time.Second, ", max_overshoot: 0%"), func(w *world) {
		w.startAll()
		time.Sleep(5 * time.Second)
		w.regions[1].one().borrow()
		before := w.stores()
		h := newTruth(w, windowUnits, longWindow)
		w.per(time.Second, longWindow)
		for _, p := range w.alive {
			p.reload()
		}
		for i, now := range w.stores() {
			if now.Epoch <= before[i].Epoch || now.Lost != 0 {
				t.Errorf("%s: the window is longer, the epoch was %+v and is %+v", w.alive[i].home.name, before[i], now)
			}
		}
		us := w.regions[1].one()
		h.use(us, windowUnits, 1)
		us.kill() // or it has its loans extended
		h.flood(2 * longWindow)
		if h.over > 0 || h.over < -windowUnits/2 {
			t.Errorf("in a window of %v after the reload %d units are admitted, want %d", longWindow, windowUnits+h.over, windowUnits)
		}
		before = w.stores()
		w.per(longWindow, time.Second)
		for _, p := range w.alive {
			p.reload()
		}
		time.Sleep(2 * state.TurnEvery)
		for i, now := range w.stores() {
			if now != before[i] {
				t.Errorf("%s: the window is shorter, the epoch was %+v and is %+v", w.alive[i].home.name, before[i], now)
			}
		}
	})
}

// A region that loses its data soon after its window became shorter keeps its share closed for as long as loans that it made
// before may be used, although its process was started anew and has read the shorter window alone. Of a process that read the
// file again, TestWindows of region/state and the worlds of shorter-window in test/sim say the same.
func TestLongWorldShorterWindow(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(windowUnits, longWindow, ", max_overshoot: 0%"), func(w *world) {
		w.startAll()
		time.Sleep(5 * time.Second)
		eu, us := w.regions[0], w.regions[1].one()
		us.borrow()
		h := newTruth(w, windowUnits, time.Second)
		w.per(longWindow, time.Second)
		us.reload()
		w.regions[2].one().reload()
		eu.one().stop()
		eu.start("one")
		h.flood(2 * state.TurnEvery) // what its process read last it knows
		eu.redis.FlushAll()
		h.flood(longWindow / 4) // longer than by the shorter window
		if h.over > 0 {
			t.Errorf("%d of %d units are admitted in a second", windowUnits+h.over, windowUnits)
		}
		bound := func() quota.Bound {
			b, _, err := eu.one().replication.bound(t.Context(), &quota.CounterKey{Policy: "standard", Limit: "all"})
			if err != nil {
				t.Error(err)
			}
			return b.Bound
		}
		long, short := loan.TermsOf(longWindow.Microseconds()).Keep(), loan.TermsOf(time.Second.Microseconds()).Keep()
		if b := bound(); b.BurntUntilUS != eu.one().replication.state.Store().Lost+long {
			t.Errorf("the share is burnt until %d after a loss at %d", b.BurntUntilUS, eu.one().replication.state.Store().Lost)
		}
		time.Sleep(time.Duration(long) * time.Microsecond)
		eu.redis.FlushAll()
		time.Sleep(2 * state.TurnEvery)
		if b := bound(); b.BurntUntilUS != eu.one().replication.state.Store().Lost+short {
			t.Errorf("much later the share is burnt until %d after a loss at %d", b.BurntUntilUS, eu.one().replication.state.Store().Lost)
		}
	})
}
