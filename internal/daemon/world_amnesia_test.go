package daemon

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestWorldRedisForgets: a Redis that loses all it held in the middle of a window
// does not give the limit out again.
func TestWorldRedisForgets(t *testing.T) {
	t.Parallel()
	const (
		units  = 600
		window = 20 * time.Second
	)
	for _, row := range []struct {
		name string
		lose func(p *node) *node
	}{
		{"flushed", func(p *node) *node {
			p.home.redis.FlushAll()
			return p
		}},
		{"away for a second and back empty", func(p *node) *node {
			p.home.away.Store(true)
			time.Sleep(time.Second)
			p.home.redis.FlushAll()
			p.home.away.Store(false)
			return p.awaitRedis()
		}},
		{"flushed, and the process killed", func(p *node) *node {
			p.kill()
			p.home.redis.FlushAll()
			return p.home.start("one").awaitReady()
		}},
	} {
		onRedises(t, worldOf(units, window, ""), func(w *world) {
			w.startAll()
			time.Sleep(200 * time.Millisecond)
			h := newTruth(w, units, window)
			eu, us := w.regions[0], w.regions[1]
			for range 8 {
				h.ask(us.one(), 10)
			}
			used := h.use(eu.one(), 40, 10)
			time.Sleep(3 * time.Second)
			p := row.lose(eu.one())
			// All of the world is asked for all at once, again and again.
			for began := time.Now(); time.Since(began) < 2*window; time.Sleep(200 * time.Millisecond) {
				h.use(p, 3, 10)
				h.use(us.one(), 3, 10)
			}
			t.Logf("%-34s %d of %d were used before; worst window %+d units, %+d of it not in transit", row.name, used+80, units, h.over, h.beyond)
			if h.share(h.beyond) > fadesWithin {
				t.Errorf("%s: %d units over the limit that were not in transit", row.name, h.beyond)
			}
			if h.all(w.now()) < units/2 {
				t.Errorf("%s: the limit is hardly used any more: %d", row.name, h.all(w.now()))
			}
		})
	}
}

// TestWorldProcessDies: what a process admitted and had told nobody is known by its
// Redis. Its next life answers by it at once, and tells the others.
func TestWorldProcessDies(t *testing.T) {
	t.Parallel()
	const units = 600
	onRedises(t, worldOf(units, time.Hour, ""), func(w *world) {
		w.startAll()
		time.Sleep(200 * time.Millisecond)
		h := newTruth(w, units, time.Hour)
		eu, us := w.regions[0], w.regions[1]
		used := h.use(eu.one(), 5, 10)
		h.use(us.one(), 2, 10)
		time.Sleep(3 * time.Second)
		before := us.one().estimate(eu)
		used += h.use(eu.one(), 1, 3)
		eu.one().askFor("quiet", 2) // and nobody of eu-west asks for that one again
		eu.one().kill()             // before the tick that says so
		if got := us.one().estimate(eu) + us.one().estimateFor("quiet", eu); got != before {
			w.t.Fatalf("the dying process told of %d, the test wants it silent", got-before)
		}
		p := eu.start("one")
		d, _ := p.explained("acme")
		if left := d.Limits[0].Remaining; left > units/3-used {
			t.Errorf("the new life's first answer leaves %d of its part of %d, %d are used", left, units/3, used)
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
	})
}

// TestWorldRedisAway: what a region admits by itself while its Redis is away counts
// elsewhere, and counts on when the Redis is back.
func TestWorldRedisAway(t *testing.T) {
	t.Parallel()
	const (
		units  = 600
		window = 2 * time.Minute
	)
	onRedises(t, worldOf(units, window, ""), func(w *world) {
		w.startAll()
		time.Sleep(200 * time.Millisecond)
		h := newTruth(w, units, window)
		eu, us := w.regions[0], w.regions[1]
		h.use(eu.one(), 10, 10)
		eu.away.Store(true)
		began := time.Now()
		local := int64(0)
		for time.Since(began) < 30*time.Second {
			if d := h.ask(eu.one(), 5); d.Allowed {
				local += 5
				if d.Mode != quota.ModeLocal {
					w.t.Fatalf("mode %v while Redis is away", d.Mode)
				}
			}
			time.Sleep(500 * time.Millisecond)
		}
		if local == 0 {
			w.t.Fatal("nothing was admitted while Redis was away")
		}
		if got := us.one().estimate(eu); got < 100+local-5 {
			t.Errorf("peers count %d of %d", got, 100+local)
		}
		eu.away.Store(false)
		eu.one().awaitRedis()
		_, terms := eu.one().explained("acme")
		if terms.Lost != local {
			t.Errorf("%d units were admitted without Redis, and %d are subtracted", local, terms.Lost)
		}
		for range 100 {
			h.use(eu.one(), 1, 10)
			h.use(us.one(), 1, 10)
			time.Sleep(200 * time.Millisecond)
		}
		t.Logf("30 s without Redis: %d admitted by itself, %d subtracted afterwards; worst window %+.1f %% of L", local, terms.Lost, h.share(h.over))
		if h.share(h.beyond) > fadesWithin {
			t.Errorf("%.1f %% over the limit that were not in transit", h.share(h.beyond))
		}
	})
}

// use asks for units so many times, and says how many were admitted.
func (h *truth) use(p *node, times int, cost int64) (units int64) {
	h.w.t.Helper()
	for range times {
		if h.ask(p, cost).Allowed {
			units += cost
		}
	}
	return units
}

// awaitRedis waits until the store decides again.
func (p *node) awaitRedis() *node {
	p.w.t.Helper()
	p.w.await("redis is back", 5*time.Second, p.redis.Available)
	return p
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
