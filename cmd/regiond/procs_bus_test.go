//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"
)

// testProcsKilledNATS: the only NATS is gone, and comes back.
func testProcsKilledNATS(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	stop := g.load(t)
	pause(time.Second)
	g.tally.mark()
	began := time.Now()
	g.nats.kill()
	pause(fault(3 * time.Second))
	g.nats.restart(t)
	g.heals(t, stop, "NATS was back", began)
	g.tally.noticed(t, procsNames(), fault(3*time.Second))
}

// testProcsFrozenNATS: connections stand, and carry nothing. First for so short a
// time that nobody gives them up, then for longer.
func testProcsFrozenNATS(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	for _, d := range []time.Duration{2 * time.Second, fault(5 * time.Second)} {
		stop := g.load(t)
		pause(time.Second)
		g.tally.mark()
		g.nats.signal(t, syscall.SIGSTOP)
		pause(d)
		g.nats.signal(t, syscall.SIGCONT)
		g.heals(t, stop, "NATS was thawed", time.Time{})
		g.tally.noticed(t, procsNames(), d)
	}
}

// testProcsFrozenKilledNATS: what lies in the frozen one's sockets is lost.
func testProcsFrozenKilledNATS(t *testing.T, binary string) {
	g := newGlobe(t, binary, true)
	stop := g.load(t)
	pause(time.Second)
	g.tally.mark()
	began := time.Now()
	g.nats.signal(t, syscall.SIGSTOP)
	pause(fault(3 * time.Second))
	g.nats.restart(t)
	g.heals(t, stop, "NATS was back", began)
	g.tally.noticed(t, procsNames(), fault(3*time.Second))
}

// heals ends the load at the moment a fault of NATS is over, and insists that two
// seconds after the last process is connected again all estimates are true.
func (g *globe) heals(t *testing.T, stop func(), what string, lost time.Time) {
	t.Helper()
	over := time.Now()
	stop()
	back := g.connected(t, lost)
	t.Logf("all connected %v after %s", back.Sub(over).Round(time.Millisecond), what)
	want := g.truth(t)
	g.settles(t, "all were connected", back, want)
	g.global(t, what, over)
	g.left(t, want)
	g.tally.labels(t, blindWords())
}

// pause lets a fault last, or the load run. It stands for nothing that is waited for.
func pause(d time.Duration) { time.Sleep(d) }
