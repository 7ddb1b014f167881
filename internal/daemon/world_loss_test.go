package daemon

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/state"
)

// wholeLimit is the limit of the worlds below, in units.
const wholeLimit = 600

// useAll uses what is left of the limit.
func (p *node) useAll() (units int64) {
	p.w.t.Helper()
	for p.ask(10).Allowed {
		units += 10
	}
	return units
}

// TestWorldProcessDies: what a process admitted and had told nobody is known by its
// Redis. Its next life answers by it at once, and tells the others.
func TestWorldProcessDies(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(wholeLimit, time.Hour, ""), func(w *world) {
		w.startAll()
		time.Sleep(200 * time.Millisecond)
		eu, us := w.regions[0], w.regions[1]
		const used = int64(53)
		eu.one().ask(50)
		us.one().ask(20)
		time.Sleep(3 * time.Second)
		before := us.one().estimate(eu)
		eu.one().ask(3)
		eu.one().askFor("quiet", 2) // and nobody of eu-west asks for that one again
		eu.one().kill()             // before the tick that says so
		if got := us.one().estimate(eu) + us.one().estimateFor("quiet", eu); got != before {
			w.t.Fatalf("the dying process told of %d, the test wants it silent", got-before)
		}
		p := eu.start("one")
		d, _ := p.explained("acme")
		if left := d.Limits[0].Remaining; left > wholeLimit/3-used {
			t.Errorf("the new life's first answer leaves %d of its part of %d, %d are used", left, wholeLimit/3, used)
		}
		took := w.await("the peers know", 5*time.Second, func() bool {
			ap := w.regions[2].one()
			return us.one().estimate(eu) == used && ap.estimate(eu) == used &&
				us.one().estimateFor("quiet", eu) == 2 && ap.estimateFor("quiet", eu) == 2
		})
		t.Logf("what a dead process had told nobody is in its peers' estimates %v after its restart", took)
		w.await("global again", 15*time.Second, w.global)
		if got, want := p.estimate(us), int64(20); got != want {
			t.Errorf("the new life believes that the others used %d, and it is %d", got, want)
		}
		// A sibling that lives tells what one that dies had told nobody.
		eu.start("two")
		time.Sleep(3 * time.Second)
		p.askFor("still", 4)
		p.kill()
		w.await("its sibling has told the peers", 20*time.Second, func() bool { return us.one().estimateFor("still", eu) == 4 })
	})
}

// What a region has used counts on when a reload takes it out of the topology.
func TestWorldRegionTakenOut(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(wholeLimit, 24*time.Hour, ""), func(w *world) {
		w.startAll()
		eu, us, ap := w.regions[0].one(), w.regions[1].one(), w.regions[2].one()
		if used := ap.useAll(); used != wholeLimit {
			t.Fatalf("ap-south used %d of %d", used, wholeLimit)
		}
		time.Sleep(time.Second)
		ap.kill()
		time.Sleep(30 * time.Second)
		w.text = "revision: 1\n" + regexp.MustCompile(`(?m)^  - \{name: ap-south.*\n`).ReplaceAllString(w.text, "")
		eu.reload()
		us.reload()
		w.await("global of two", 30*time.Second, w.global)
		time.Sleep(time.Second)
		if more := eu.useAll() + us.useAll(); more != 0 {
			t.Errorf("%d units more than the limit are admitted", more)
		}
		if _, terms := us.explained("acme"); !strings.Contains(terms.Formula, "ap-south 600") {
			t.Errorf("the formula does not name the former region: %s", terms.Formula)
		}
	})
}

// A process that starts again while its region is cut off, with other weights, still goes
// by the shares of the revision that the others have.
func TestWorldRestartWithOtherWeightsWhileCut(t *testing.T) {
	t.Parallel()
	for _, bound := range []string{"", ", max_overshoot: 0%"} {
		onRedises(t, "revision: 1\n"+worldOf(wholeLimit, time.Hour, bound), func(w *world) {
			w.startAll()
			eu := w.regions[0]
			w.isolate(0, true)
			time.Sleep(10 * time.Second)
			eu.one().stop()

			w.text = strings.Replace(w.text, "{name: eu-west,", "{name: eu-west, weight: 8,", 1)
			if err := eu.attempt("one"); err == nil || errors.Is(err, state.ErrAway) || !strings.Contains(err.Error(), "set revision: 2") {
				t.Errorf("other weights under the same revision: %v", err)
			}
			old := w.text
			w.text = strings.Replace(w.text, "revision: 1", "revision: 2", 1)
			p := eu.start("one")
			time.Sleep(10 * time.Second)
			sum := p.useAll() + w.regions[1].one().useAll()
			time.Sleep(time.Second)
			if sum += w.regions[2].one().useAll(); sum > wholeLimit {
				t.Errorf("%q: %d of 600 are admitted", bound, sum)
			}
			t.Logf("%q: %d of 600 are admitted", bound, sum)

			w.text = old
			if err := eu.attempt("two"); err == nil || !strings.Contains(err.Error(), "revision 2 is in force") {
				t.Errorf("a lower revision: %v", err)
			}
		})
	}
}

// While Redis is away at the start, nothing is known of earlier revisions: a process keeps
// to its own share until it has read them.
func TestWorldStartsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(wholeLimit, time.Hour, ""), func(w *world) {
		w.startAll()
		eu := w.regions[0]
		eu.one().stop()
		eu.away.Store(true)
		p := eu.start("one", func(o *Options) { o.Processes = 2 })
		time.Sleep(10 * time.Second)
		if units := p.useAll(); units != 100 {
			t.Errorf("%d of 600 are admitted, want 200 ÷ 2 processes", units)
		}
		eu.away.Store(false)
		w.await("its Redis is back", 20*time.Second, w.global)
	})
}

// A check that misses the region's own usage counter ends the epoch of its store.
func TestWorldLostCounterEndsTheEpoch(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(wholeLimit, time.Hour, ""), func(w *world) {
		w.startAll()
		eu := w.regions[0]
		eu.one().ask(10)
		time.Sleep(5 * time.Second)
		before := eu.one().state.Store()
		for _, key := range eu.redis.Keys() {
			if strings.HasPrefix(key, "rl:{acme}:t.") {
				eu.redis.Del(key)
			}
		}
		eu.one().ask(10)
		if now := eu.one().state.Store(); before.Epoch == 0 || now.Epoch == before.Epoch || now.Lost == 0 {
			t.Errorf("the epoch was %v and is %v", before, now)
		}
		if other := w.regions[1].one().state.Store(); other.Lost != 0 {
			t.Errorf("another region's epoch is %v", other)
		}
	})
}

// TestWorldLostLoansEndTheEpoch: so does the loss of what the store had of loans, while the usage counter is still there.
func TestWorldLostLoansEndTheEpoch(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(wholeLimit, time.Hour, ", max_overshoot: 0%"), func(w *world) {
		w.startAll()
		eu := w.regions[0]
		for range 100 {
			eu.one().ask(4)
			time.Sleep(100 * time.Millisecond)
		}
		before := eu.one().state.Store()
		if !eu.redis.Del("rl:{acme}:b.all:standard:::") {
			t.Fatal("the store has nothing of loans")
		}
		eu.one().ask(4)
		w.await("another epoch", 5*time.Second, func() bool { return eu.one().state.Store().Epoch != before.Epoch })
		if now := eu.one().state.Store(); before.Lost != 0 || now.Lost == 0 {
			t.Errorf("the store was %v and is %v", before, now)
		}
	})
}

// awaitReady waits as a load balancer does.
func (p *node) awaitReady() *node {
	p.w.t.Helper()
	p.w.await("ready", 5*time.Second, func() bool {
		ok, _ := p.ready()
		return ok
	})
	return p
}

// After a loss of data, answers, GET /v1/regions, the log and metrics say that the region's own share counts as used, why, and
// until when; and then that it is there again.
func TestWorldSaysThatAShareIsBurnt(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(wholeLimit, 4*time.Second, ", max_overshoot: 0%"), func(w *world) {
		w.startAll()
		time.Sleep(10 * time.Second)
		eu := w.regions[0].one()
		if d := eu.ask(10); !d.Allowed || d.Reason != quota.ReasonNone || len(eu.seen().Bounds) > 0 {
			t.Fatalf("before the loss: %+v, %+v", d, eu.seen().Bounds)
		}
		eu.home.redis.FlushAll()
		w.await("its share is burnt", 3*time.Second, func() bool {
			b := eu.seen().Bounds
			return len(b) == 1 && b[0].Reason == quota.ReasonBoundBurnt
		})
		b := eu.seen().Bounds[0]
		if ok, _ := regexp.MatchString(`^This region lost its data at \d\d:\d\d:\d\d UTC, so what it had admitted before is not known. Until \d\d:\d\d:\d\d UTC its own share of limit \S+ counts as used, and it admits only what other regions lend it.$`, b.Text); !ok {
			t.Errorf("it says %q", b.Text)
		}
		if d := eu.ask(10); d.Reason != quota.ReasonBoundBurnt || !d.Allowed && d.RetryAfter() != time.Second {
			t.Errorf("answered %+v", d)
		}
		time.Sleep(2 * time.Second)
		if !strings.Contains(eu.log.String(), b.Text) {
			t.Errorf("the log lacks %q", b.Text)
		}
		if got := w.regions[1].one().resetAll(); got != "eu-west cleared burnt, us-east cleared, ap-south cleared" {
			t.Errorf("a reset of all regions answers %s", got)
		}
		time.Sleep(time.Duration(eu.seen().Bounds[0].LeftMS-2) * time.Millisecond)
		for len(eu.seen().Bounds) > 0 {
			if eu.burntMS() == 0 {
				t.Fatalf("%+v, and a reset names nothing", eu.seen().Bounds)
			}
			time.Sleep(100 * time.Microsecond)
		}
		if d := eu.ask(10); !d.Allowed || d.Reason != quota.ReasonNone || len(eu.seen().Bounds) > 0 {
			t.Errorf("when it is over: %+v, %+v", d, eu.seen().Bounds)
		}
		w.await("the log says so", 2*time.Second, func() bool { return strings.Contains(eu.log.String(), "the region's own share is there again") })
	})
}

// While the clock of its Redis runs too fast or too slow a region says that this is why a bound is closed, wherever it says anything.
func TestWorldSaysThatAClockIsWrong(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(wholeLimit, 4*time.Second, ", max_overshoot: 0%"), func(w *world) {
		w.startAll()
		time.Sleep(10 * time.Second)
		eu := w.regions[0].one()
		time.Sleep(37 * time.Millisecond) // between two readings of the clock
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			eu.home.aheadUS.Add(-4_000)
		}
		const says = "The clock of this region's Redis runs more than 2 % too fast or too slow. Limit standard.all admits nothing until it does not."
		d, _ := eu.explained("acme")
		if b := eu.seen().Bounds; len(b) != 1 || b[0].Text != says || b[0].Until != nil || d.Reason != quota.ReasonBoundClosed {
			t.Errorf("%v: it says %+v", d.Reason, b)
		}
		if text := strings.Join(d.Explanation.Sentences, " "); !strings.Contains(text, "while the clock of its Redis runs more than 2 % too fast or too slow.") {
			t.Errorf("explained by %s", text)
		}
		if !strings.Contains(eu.log.String(), says) {
			t.Error("the log does not say so")
		}
		if got := eu.burntMS(); got != -1 {
			t.Errorf("a reset says %d ms", got)
		}
		w.await("its share is there again", time.Minute, func() bool { return len(eu.seen().Bounds) == 0 })
	})
}
