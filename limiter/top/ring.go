package top

import (
	"math/bits"
	"sync/atomic"

	"github.com/regiond/regiond/quota"
)

// Event is a decision about the limits of one partition.
type Event struct {
	Key    string         // of the partition in the store
	Limits []*quota.Limit // that are asked of the key; never changed
	Which  uint64         // bit i is Limits[i]
	Units  int64          // of each of them
	By     quota.TopBy
}

// ringSize is a power of two. At 100,000 decisions a second on two processors it is full after 80 ms, and
// the folding goroutine is called at the half.
const ringSize = 4096

// ring is a bounded queue of events with many writers, that wait for nothing, and one reader
// (D. Vyukov's bounded queue). The number in a cell says whose turn it is, of the events that come to it:
//
//	2·lap    the writer of its event of that lap, the first is 0
//	2·lap+1  the reader of that event
type ring struct {
	tail  atomic.Uint64 // of the next event to be written
	_     [56]byte      // a cache line
	cells [ringSize]cell
	head  uint64 // of the next event to be read; the reader's
	lost  [len(kinds)]losses
}

type cell struct {
	turn  atomic.Uint64
	event Event
}

// losses are what found no room.
type losses struct{ events, units, all atomic.Int64 }

// put adds an event, or counts it as lost. full is true each time that half a ring was written.
func (r *ring) put(e Event) (full bool) {
	for {
		at := r.tail.Load()
		c, own := &r.cells[at%ringSize], at/ringSize*2
		switch turn := c.turn.Load(); {
		case turn == own && r.tail.CompareAndSwap(at, at+1):
			c.event = e
			c.turn.Store(own + 1)
			return at%(ringSize/2) == 0
		case turn < own: // the event before was not read yet
			l := &r.lost[e.By]
			l.units.Add(e.Units)
			l.all.Add(e.Units * int64(bits.OnesCount64(e.Which)))
			l.events.Add(1)
			return false
		}
	}
}

// take removes the oldest event.
func (r *ring) take() (e Event, ok bool) {
	c, written := &r.cells[r.head%ringSize], r.head/ringSize*2+1
	if c.turn.Load() != written {
		return e, false
	}
	e, c.event = c.event, Event{}
	c.turn.Store(written + 1)
	r.head++
	return e, true
}
