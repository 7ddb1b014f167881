//go:build unix

package main

import (
	"testing"
	"time"
)

// testProcsFlushed: a Redis forgets all. What it has lost still counts, with its
// own region and with the others.
func testProcsFlushed(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	p := g.regions[0]
	stop := g.load(t)
	pause(time.Second)
	g.tally.mark()
	if err := p.redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	pause(fault(2 * time.Second))
	stop()
	over := time.Now()
	want := g.truth(t, p.name)
	g.settles(t, "the load ended", over, want)
	g.global(t, "the load ended", over)
	g.left(t, want)
	g.tally.labels(t, blindWords())
}

// testProcsKilledRedis: a Redis dies and comes back empty. Meanwhile its region
// admits its part by itself, and that counts too.
func testProcsKilledRedis(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	p := g.regions[1]
	stop := g.load(t)
	pause(time.Second)
	g.tally.mark()
	p.redis.Kill()
	pause(fault(3 * time.Second))
	p.redis.Restart()
	back := time.Now()
	g.everywhere(t, "every Redis available", func(v *regionsView) bool { return v.Store.Available })
	t.Logf("it is used again %v after it was back", time.Since(back).Round(time.Millisecond))
	pause(time.Second)
	stop()
	over := time.Now()
	want := g.truth(t, p.name)
	g.settles(t, "the load ended", over, want)
	g.global(t, "the load ended", over)
	g.left(t, want)
	g.tally.labels(t, awayWords())
	g.tally.noticed(t, []string{p.name}, fault(3*time.Second))
}
