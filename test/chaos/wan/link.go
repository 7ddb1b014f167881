package wan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Link is what one direction between two namespaces does to packets. The zero value
// carries all of them at once.
type Link struct {
	Delay  time.Duration // of every packet
	Jitter time.Duration // at most this is added; packets keep their order
	// Loss, Duplicate and Reorder are shares of the packets, 0 to 1. A reordered packet
	// leaves at once and so overtakes those that were sent in the last Delay.
	Loss, Duplicate, Reorder float64
	// LossUDP is lost of UDP in addition, 0 to 1.
	LossUDP float64
	// Swallow carries nothing.
	Swallow bool
}

// Cut is the link that carries nothing.
func (l Link) Cut() Link {
	l.Swallow = true
	return l
}

func (l Link) validate() error {
	for _, share := range []float64{l.Loss, l.Duplicate, l.Reorder, l.LossUDP} {
		if share < 0 || share > 1 {
			return fmt.Errorf("a share of %v packets: shares are between 0 and 1", share)
		}
	}
	if l.Delay < 0 || l.Jitter < 0 {
		return errors.New("delay and jitter are not negative")
	}
	return nil
}

// protocolUDP is that of IPv4.
const protocolUDP = 17

// line is one direction at work.
type line struct {
	link   Link
	random *rand.Rand
	last   time.Time // when the last packet that keeps its order is due
}

// plan returns when copies of a packet that arrived at now are due at the other end; none
// when it is lost. It draws the same number of times for every packet, so that a
// packet's plan does not depend on what the link did to others.
func (l *line) plan(protocol byte, now time.Time) []time.Time {
	lost, lostUDP := l.random.Float64(), l.random.Float64()
	twice, ahead, jitter := l.random.Float64(), l.random.Float64(), l.random.Float64()
	k := l.link
	if k.Swallow || lost < k.Loss || protocol == protocolUDP && lostUDP < k.LossUDP {
		return nil
	}
	due := now
	if ahead >= k.Reorder {
		due = now.Add(k.Delay + time.Duration(jitter*float64(k.Jitter)))
		if due.Before(l.last) {
			due = l.last
		}
		l.last = due
	}
	if twice < k.Duplicate {
		return []time.Time{due, due}
	}
	return []time.Time{due}
}
