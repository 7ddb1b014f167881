//go:build unix

package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// second starts a further process of a region, at addresses of its own.
func (g *globe) second(t *testing.T, p *place) *process {
	t.Helper()
	return g.start(t, p, "two", "--gossip", freeAddr(t))
}

// testProcsSecondLeaves: a region is served by two for a while. What they admit is
// one region's, and nobody is refused or cut off when one comes or goes.
func testProcsSecondLeaves(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	p := g.regions[0]
	stop := g.load(t)
	pause(time.Second)
	g.tally.mark()
	two := g.second(t, p)
	p.open(two)
	pause(fault(2 * time.Second))
	stop()
	g.settles(t, "the load ended", time.Now(), g.truth(t))
	g.tally.labels(t, append(blindWords(), "joining joining"))
	g.global(t, "then", time.Now())
	missed := g.says("process two was never heard")
	stop = g.load(t)
	pause(time.Second)
	leaving := two.signal(t, syscall.SIGTERM)
	p.shut(two)
	two.exits(t, 0)
	over := time.Now()
	pause(500 * time.Millisecond)
	stop()
	if n := g.says("process two was never heard") - missed; n != 0 {
		t.Errorf("it said that it leaves, and was missed %d times", n)
	}
	want := g.truth(t)
	g.settles(t, "it had left", over, want)
	g.everywhere(t, "the second has left", func(v *regionsView) bool { return !counts(v, "eu-west", "two") })
	g.global(t, "it was told to leave", leaving)
	g.left(t, want)
	g.tally.labels(t, blindWords())
}

// says counts how often the first processes' logs have a text.
func (g *globe) says(text string) (n int) {
	for _, p := range g.regions {
		n += strings.Count(p.first.log.String(), text)
	}
	return n
}

// counts tells whether a process is one of those that are there.
func counts(v *regionsView, region, instance string) bool {
	for _, r := range v.Regions {
		for _, one := range r.Processes {
			if r.Name == region && one.Instance == instance {
				return one.State != "left" && one.State != "dead"
			}
		}
	}
	return false
}

// testProcsSecondKilled: what the killed one had not published yet stands in the
// Redis that it shared with its sibling, which reads it once the other is silent.
func testProcsSecondKilled(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	p := g.regions[0]
	two := g.second(t, p)
	p.open(two)
	g.global(t, "the second was ready", time.Now())
	stop := g.load(t)
	pause(fault(2 * time.Second))
	g.tally.mark()
	p.shut(two)
	killed := two.signal(t, syscall.SIGKILL)
	<-two.exited
	pause(500 * time.Millisecond)
	stop()
	want := g.truth(t)
	// Before it is silent nobody can know that it will not say more.
	noticed := killed.Add(1350 * time.Millisecond)
	g.settles(t, "its silence could be noticed", noticed, want, g.regions[1:]...)
	g.settles(t, "the others know", time.Now(), want)
	g.global(t, "it was killed", killed)
	g.left(t, want)
	g.tally.labels(t, blindWords())
}

// testProcsKilled: a region's only process is killed and started again over its
// Redis. Its peers miss it, and it knows at once what it had admitted.
func testProcsKilled(t *testing.T, binary string) { procsKilled(t, newGlobe(t, binary, true)) }

func procsKilled(t *testing.T, g *globe) {
	p := g.regions[2]
	stop := g.load(t)
	pause(time.Second)
	g.tally.mark()
	p.shut(p.first)
	killed := p.first.signal(t, syscall.SIGKILL)
	<-p.first.exited
	pause(fault(3 * time.Second))
	again := time.Now()
	p.first = g.start(t, p, "one")
	ready := time.Now()
	t.Logf("ready again %v after its start", ready.Sub(again).Round(time.Millisecond))
	stop()
	p.open(p.first) // not before: what it is asked it looks up
	want := g.truth(t)
	g.settles(t, "it was ready again", ready, want, g.regions[:2]...)
	g.settles(t, "the others know", time.Now(), want)
	g.global(t, "it was started again", again)
	g.left(t, want)
	g.tally.labels(t, append(blindWords(), "joining joining"))
	g.tally.noticed(t, procsNames()[:2], again.Sub(killed))
}

// testProcsNamesakes: of two processes with one name the second waits, says why,
// and takes over when the first has gone.
func testProcsNamesakes(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	p := g.regions[1]
	two := g.launch(t, p, "one", "--gossip", freeAddr(t))
	refuses := func(said string) error {
		if a := two.admin.get(t, "/readyz"); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, said) {
			return fmt.Errorf("the second: /readyz: %d %s", a.status, a.body)
		}
		return nil
	}
	eventually(t, func() error { return refuses("give each its own --instance") })
	began := time.Now()
	for ; time.Since(began) < fault(4*time.Second); pause(20 * time.Millisecond) {
		if err := refuses("another process"); err != nil {
			t.Fatal(err)
		}
		p.first.admin.get(t, "/readyz").is(t, http.StatusOK)
		p.first.check(t, "acme").is(t, http.StatusOK)
	}
	g.global(t, "a second of its name came", began) // its first word made the others doubt the first
	p.shut(p.first)
	gone := p.first.signal(t, os.Interrupt)
	p.first.exits(t, 0)
	two.ready(t)
	t.Logf("the second is ready %v after the first was told to stop", time.Since(gone).Round(time.Millisecond))
	p.first = two
	p.open(two)
	g.global(t, "the first was told to stop", gone)
}
