package sim

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// message is one publication.
type message struct {
	meshsync.Message
	usage *wire.Usage // decoded, if it is of usage and the world is judged or perfect
	from  *process
	hash  uint64 // of its bytes, or their number
}

// link is the way from one region to another, one way.
type link struct {
	delay, jitter time.Duration
	cut           bool
	loss          float64 // of messages that get lost
	twice         float64 // that come twice
	late          float64 // that are overtaken, by up to lateBy
}

// lateBy is how late a message may be that others overtake.
const lateBy = 2 * time.Second

// port is one process's connection to the bus. It implements sync.Bus.
type port struct {
	p    *process
	down bool // the bus refuses what it publishes, and brings it nothing
	// newest is when the newest message for each process arrives, so that those of one
	// publisher keep their order unless they are made late.
	newest map[*process]time.Duration
	// late is when the newest of those arrives that others may overtake.
	late      map[*process]time.Duration
	published uint64 // messages
	// deaf has the regions with which nothing is exchanged although the region is connected.
	deaf map[*simRegion]bool
}

// chance is what is left to chance on a message's way to one process. It depends on
// nothing but the seed, the two and the message's number.
type chance struct{ state uint64 }

func (w *World) chance(from, to *process) chance {
	return chance{w.o.Seed ^ from.bus.published<<20 ^ uint64(from.number)<<52 ^ uint64(to.number)<<8}
}

// next is a random number (splitmix64).
func (c *chance) next() uint64 {
	c.state += 0x9e3779b97f4a7c15
	z := c.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// happens is true with a probability from 0 to 1.
func (c *chance) happens(often float64) bool {
	return often > 0 && float64(c.next()>>11) < often*(1<<53)
}

// below is a time from 0 to below most.
func (c *chance) below(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(c.next() % uint64(most))
}

var errDown = errors.New("the simulated bus is down")

// Messages implements sync.Bus; the world calls Receive.
func (*port) Messages() <-chan meshsync.Message { return nil }

// Gaps implements sync.Bus; the world calls Reconnected.
func (*port) Gaps() <-chan struct{} { return nil }

// Limit implements sync.Bus.
func (*port) Limit() int { return 0 }

// Publish implements sync.Bus.
func (b *port) Publish(subject string, data []byte, _ ...meshsync.Field) error {
	w := b.p.region.w
	if b.down {
		return errDown
	}
	w.stats.Published++
	b.published++
	m := &message{Message: meshsync.Message{Subject: subject, Data: slices.Clone(data)}, from: b.p, hash: xxhash.Sum64(data)}
	if strings.HasPrefix(subject, meshsync.SubjectLoan) {
		w.stats.Loans++
		m.hash = uint64(len(data)) // the nonce of what is sealed in it is random
	}
	if (w.judge != nil || w.perfect != nil) && strings.HasPrefix(subject, meshsync.SubjectUsage) {
		m.usage, _ = wire.Decode[*wire.Usage](m.Data)
	}
	if w.perfect != nil {
		w.perfect.publish(w, m)
	}
	for _, s := range w.regions {
		if meshtest.Subscribed(s.name, subject) {
			w.send(m, s.processes...)
		}
	}
	return nil
}

// send puts a message on its way to processes, but for its author.
func (w *World) send(m *message, to ...*process) {
	for _, p := range to {
		l := &w.links[m.from.region.place][p.region.place]
		if p == m.from {
			continue
		}
		c := w.chance(m.from, p)
		if l.cut || p.bus.down || m.from.bus.deaf[p.region] || p.bus.deaf[m.from.region] || c.happens(l.loss) {
			w.stats.Lost++
			continue
		}
		w.arrive(m, p, l, &c)
		if c.happens(l.twice) {
			w.reached(duplicate)
			w.arrive(m, p, l, &c)
		}
	}
}

func (w *World) arrive(m *message, to *process, l *link, c *chance) {
	at := w.now + l.delay + c.below(l.jitter)
	if c.happens(l.late) {
		at += c.below(w.mayBeLate(m.Subject))
		m.from.bus.late[to] = at
	} else {
		at = max(at, m.from.bus.newest[to])
		m.from.bus.newest[to] = at
		if at < m.from.bus.late[to] {
			w.reached(overtaken)
		}
	}
	w.queue.add(event{at: at, kind: kindMessage, p: to, msg: m})
}
