package daemon

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
)

// What regions know of each other is complete, or they do not count on each other. In each
// world a region uses all of a limit, something goes wrong, and the others may have little
// more than what is admitted while it is noticed.

const wholeLimit = 600

// useAll uses what is left of the limit.
func (p *node) useAll() (units int64) {
	p.w.t.Helper()
	for p.ask(10).Allowed {
		units += 10
	}
	return units
}

// usedUp has a region use the whole limit, and lets all learn of it.
func (w *world) usedUp(s *nodeRegion) {
	w.t.Helper()
	if used := s.one().useAll(); used != wholeLimit {
		w.t.Fatalf("%s used %d of %d", s.name, used, wholeLimit)
	}
	time.Sleep(time.Second)
}

// atMost holds what others admitted after a region had used the whole limit.
func (w *world) atMost(what string, more, most int64) {
	w.t.Helper()
	w.t.Logf("%-50s %d of %d", what, wholeLimit+more, wholeLimit)
	if more > most {
		w.t.Errorf("%s: %d of %d were admitted", what, wholeLimit+more, wholeLimit)
	}
}

// lossyBus loses messages on subjects with a prefix and reports success, as a NATS server
// does that takes away permissions.
type lossyBus struct {
	meshsync.Bus
	prefix atomic.Pointer[string]
	left   atomic.Int64
}

func (b *lossyBus) lose(prefix string, messages int64) {
	b.left.Store(messages)
	b.prefix.Store(&prefix)
}

func (b *lossyBus) Publish(subject string, data []byte, header ...meshsync.Field) error {
	if p := b.prefix.Load(); p != nil && strings.HasPrefix(subject, *p) && b.left.Add(-1) >= 0 {
		return nil
	}
	return b.Bus.Publish(subject, data, header...)
}

// startLossy starts a process behind a lossyBus.
func (s *nodeRegion) startLossy() (*node, *lossyBus) {
	b := &lossyBus{}
	p := s.start("one", func(o *Options) {
		wrap := o.WrapBus
		o.WrapBus = func(inner meshsync.Bus) meshsync.Bus {
			b.Bus = wrap(inner)
			return b
		}
	})
	return p, b
}

// A process that starts learns from the others what a region has used that it never met,
// and before it counts on them; a lost request is repeated.
func TestWorldStartWhileRegionIsGone(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		lost int64
	}{{"no message is lost", 0}, {"a request is lost", 1}, {"three requests are lost", 3}} {
		onRedises(t, worldOf(wholeLimit, time.Hour, ""), func(w *world) {
			w.startAll()
			eu, us, ap := w.regions[0], w.regions[1], w.regions[2]
			w.usedUp(eu)
			eu.one().kill()
			time.Sleep(30 * time.Second)
			ap.one().stop()
			time.Sleep(5 * time.Second)
			p, bus := ap.startLossy()
			time.Sleep(1200 * time.Millisecond)
			bus.lose(meshsync.SubjectSnapshot, row.lost)
			more := int64(0)
			for range 600 {
				more += p.useAll() + us.one().useAll()
				time.Sleep(100 * time.Millisecond)
			}
			// A part of its own is all that a process may use that could ask nobody yet.
			w.atMost(row.name, more, wholeLimit/3)
		})
	}
}

// The same with so much to learn that it takes seconds.
func TestLongWorldCountsOnNobodyBeforeItKnowsAll(t *testing.T) {
	t.Parallel()
	inWorld(t, worldOf(wholeLimit, time.Hour, ""), func(w *world) {
		w.startAll()
		eu, us, ap := w.regions[0], w.regions[1], w.regions[2]
		w.usedUp(eu)
		eu.one().kill()
		time.Sleep(30 * time.Second)
		ap.one().stop()
		l, dice, hour := us.one().replication.ceilings.Ledger(), rand.New(rand.NewPCG(1, 1)), time.Hour.Microseconds()
		for range 300_000 {
			s := ledger.Series{ID: dice.Uint64(), Limit: "standard.all", Units: wholeLimit, WindowUS: hour}
			l.Record(&s, quota.Counter{Bucket: us.nowUS() / hour, Generation: us.nowUS(), Units: 1}, us.nowUS())
		}
		time.Sleep(5 * time.Second)
		p, more := ap.start("one"), int64(0)
		for range 80 {
			more += p.useAll()
			time.Sleep(100 * time.Millisecond)
		}
		w.atMost("300,000 counters to learn", more, wholeLimit/3)
	})
}

// A region that lost its store and comes back learns from its peers what it has used, also
// from those that started while it was away.
func TestWorldRegionReturnsWithoutItsStore(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		onRedises(t, worldOf(wholeLimit, time.Hour, ""), func(w *world) {
			w.startAll()
			eu, ap := w.regions[0], w.regions[2]
			w.usedUp(eu)
			eu.one().kill()
			eu.redis.FlushAll()
			time.Sleep(30 * time.Second)
			name := "no other process restarts"
			if restart {
				name = "another region restarts meanwhile"
				ap.one().stop()
				time.Sleep(2 * time.Second)
				ap.start("one").awaitReady()
			}
			time.Sleep(30 * time.Second)
			p := eu.start("one").awaitReady()
			w.await("global", time.Minute, w.global)
			more := int64(0)
			for range 200 {
				more += p.useAll()
				time.Sleep(100 * time.Millisecond)
			}
			w.atMost(name, more, 10) // what one check may have before the store's loss shows
		})
	}
}

// What a region has used counts on when it is taken out of the topology.
func TestWorldRegionTakenOut(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		onRedises(t, worldOf(wholeLimit, 24*time.Hour, ""), func(w *world) {
			w.startAll()
			eu, us, ap := w.regions[0], w.regions[1], w.regions[2]
			w.usedUp(ap)
			ap.one().kill()
			time.Sleep(30 * time.Second)
			w.text = "revision: 1\n" + regexp.MustCompile(`(?m)^  - \{name: ap-south.*\n`).ReplaceAllString(w.text, "")
			eu.one().reload()
			us.one().reload()
			name := "a region is taken out"
			if restart {
				name = "and a process restarts"
				eu.one().stop()
				eu.start("one").awaitReady()
				w.await("eu-west has learnt of it", 30*time.Second, w.global)
				us.one().stop() // now every process of the regions that are left has started anew
				us.start("one").awaitReady()
			}
			w.await("global of two", 30*time.Second, w.global)
			time.Sleep(time.Second)
			w.atMost(name, eu.one().useAll()+us.one().useAll(), 0)
			_, terms := us.one().explained("acme")
			if !strings.Contains(terms.Formula, "ap-south 600") {
				t.Errorf("the formula does not name the former region: %s", terms.Formula)
			}
		})
	}
}

// Lost usage is noticed although heartbeats pass, and the region that lost it is not
// counted on.
func TestLongWorldUsageIsLostWhileHeartbeatsPass(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(wholeLimit, time.Hour, ""), func(w *world) {
		eu, us, ap := w.regions[0], w.regions[1], w.regions[2]
		p, bus := eu.startLossy()
		us.start("one")
		ap.start("one")
		w.await("global", 10*time.Second, w.global)
		bus.lose(meshsync.SubjectUsage, 1<<60)
		if used := p.useAll(); used != wholeLimit {
			w.t.Fatalf("eu-west used %d", used)
		}
		w.await("the others do not count on it", 3*time.Second, func() bool {
			return us.one().mode() == quota.ModePartitioned && ap.one().mode() == quota.ModePartitioned
		})
		if shown := us.one().replication.ceilings.View().Peers()[0].Processes[0]; shown.MissingMS < 1000 || shown.Complete >= shown.Newest {
			t.Errorf("of what is missing %+v is shown", shown)
		}
		more := int64(0)
		for range 600 {
			more += us.one().useAll() + ap.one().useAll()
			time.Sleep(time.Second)
		}
		w.atMost("usage is lost", more, 2*wholeLimit/3)
		bus.lose("", 0)
		w.await("known once messages arrive", 3*time.Second, func() bool { return us.one().estimate(eu) == wholeLimit })
		w.await("global again", 40*time.Second, w.global)
	})
}

// A store's clock that steps back by less than two windows hides nothing.
func TestLongWorldClockStepsBackALittle(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name         string
		window       time.Duration
		into, stepBy time.Duration // into a bucket
	}{
		{"a minute, by almost a bucket", time.Minute, 2 * time.Second, 55 * time.Second},
		{"a minute, by less than a bucket", time.Minute, 30 * time.Second, 45 * time.Second},
		{"twelve minutes, by almost a bucket", 12 * time.Minute, 12 * time.Second, 11 * time.Minute},
	} {
		onRedises(t, worldOf(wholeLimit, row.window, ""), func(w *world) {
			w.startAll()
			eu, us := w.regions[0], w.regions[1]
			now := time.UnixMicro(eu.nowUS())
			into := now.Truncate(row.window).Add(row.into)
			if into.Before(now) {
				into = into.Add(row.window)
			}
			time.Sleep(into.Sub(now))
			used := int64(0)
			if eu.one().ask(10).Allowed {
				used += 10
			}
			time.Sleep(time.Second)
			eu.aheadUS.Add(-row.stepBy.Microseconds())
			time.Sleep(2 * time.Second)
			stepped := time.Now()
			used += eu.one().useAll()
			more := int64(0)
			for since := time.Duration(0); since < row.window*19/20; since = time.Since(stepped) {
				time.Sleep(row.window / 600)
				if since > row.window/2 && since < row.window*6/10 {
					continue // and later some more
				}
				more += us.one().useAll()
			}
			t.Logf("%-35s eu-west %d, then us-east %d of %d", row.name, used, more, wholeLimit)
			if used+more > wholeLimit*105/100 {
				t.Errorf("%s: %d of %d in one window", row.name, used+more, wholeLimit)
			}
		})
	}
}

// What a process knows that its siblings have used binds it while Redis is away.
func TestWorldSiblingsWithoutRedis(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(wholeLimit, time.Hour, ""), func(w *world) {
		w.startAll()
		eu := w.regions[0]
		two := eu.start("two").awaitReady()
		w.await("global", 30*time.Second, w.global)
		if used := two.useAll(); used != wholeLimit {
			w.t.Fatalf("the sibling used %d", used)
		}
		time.Sleep(5 * time.Second)
		eu.away.Store(true)
		more := int64(0)
		for range 400 {
			if eu.one().ask(10).Allowed {
				more += 10
			}
			time.Sleep(50 * time.Millisecond)
		}
		w.atMost("Redis is away", more, 0)
	})
}
