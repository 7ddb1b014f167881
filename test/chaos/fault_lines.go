//go:build linux

package chaos

import (
	"fmt"
	"time"

	"github.com/regiond/regiond/test/chaos/wan"
)

// everywhere is all lines.
func everywhere(int, int) bool { return true }

// CutBus swallows all TCP between regions, and leaves gossip its packets.
func (w *World) CutBus() Fault {
	return w.lines("no TCP between regions", everywhere, func(l wan.Link) wan.Link { l.CutTCP = true; return l })
}

// CutBusOneWay swallows what one region sends to another over TCP: gossip sees nothing
// wrong.
func (w *World) CutBusOneWay(from, to string) Fault {
	return w.lines(fmt.Sprintf("no TCP gets from %s to %s", from, to),
		func(i, k int) bool { return w.joins(i, k, from, to) }, func(l wan.Link) wan.Link { l.CutTCP = true; return l })
}

// CutGossip swallows all gossip, over UDP and TCP.
func (w *World) CutGossip() Fault {
	return w.lines("no gossip", everywhere, func(l wan.Link) wan.Link { l.CutPort = gossipPort; return l })
}

// CutRing drops what each region sends to the next: no region sees all, and each pair
// has one way left.
func (w *World) CutRing() Fault {
	return w.lines("one way of each line gone, round about",
		func(from, to int) bool { return to == (from+1)%len(w.Regions) }, wan.Link.Cut)
}

// Narrow silently drops packets above a size on all lines: an MTU black hole.
func (w *World) Narrow(most int) Fault {
	return w.lines(fmt.Sprintf("packets above %d bytes are lost", most), everywhere, func(l wan.Link) wan.Link { l.Most = most; return l })
}

// Lopsided delays what one region sends to another, and hurries what comes back.
func (w *World) Lopsided(from, to string, there, back time.Duration) Fault {
	delay := func(a, b string, d time.Duration) Fault {
		return w.lines(fmt.Sprintf("%v from %s to %s", d, a, b),
			func(i, k int) bool { return w.joins(i, k, a, b) }, func(l wan.Link) wan.Link { l.Delay = d; return l })
	}
	return Both(delay(from, to, there), delay(to, from, back))
}
