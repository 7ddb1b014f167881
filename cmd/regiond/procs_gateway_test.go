//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"
)

// testProcsKilledGateway is testProcsKilled where the killed process was also the
// region's NATS server.
func testProcsKilledGateway(t *testing.T, binary string) {
	procsKilled(t, newGlobe(t, binary, false))
}

// testProcsFrozenGateway: a process that stands still is missed by the others, and
// once it goes on it knows that it knows nothing.
func testProcsFrozenGateway(t *testing.T, binary string) {
	g := newGlobe(t, binary, false)
	p := g.regions[0]
	stop := g.load(t)
	pause(time.Second)
	g.tally.mark()
	p.shut(p.first) // what was sent to it waits, and is answered late
	pause(100 * time.Millisecond)
	p.first.signal(t, syscall.SIGSTOP)
	pause(fault(4 * time.Second))
	p.first.signal(t, syscall.SIGCONT)
	thawed := time.Now()
	u, err := p.first.believes(procsTenant(0))
	if err != nil || u.Mode != "partitioned" || u.Reason != "process_paused" {
		t.Errorf("thawed, it answers in mode %q because of %q (%v), want partitioned, process_paused", u.Mode, u.Reason, err)
	}
	p.open(p.first)
	pause(500 * time.Millisecond)
	stop()
	over := time.Now()
	want := g.truth(t)
	g.settles(t, "the load ended", over, want)
	g.global(t, "it was thawed", thawed)
	g.left(t, want)
	g.tally.labels(t, append(blindWords(), "joining joining"))
	g.tally.noticed(t, procsNames()[1:], thawed.Sub(g.tally.marked))
}
