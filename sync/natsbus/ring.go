package natsbus

import (
	meshsync "github.com/regiond/regiond/sync"
)

// ring is a queue bounded in messages and in bytes. It is not safe for
// concurrent use.
type ring struct {
	slots    []meshsync.Message
	head     int // the oldest
	n        int
	bytes    int
	maxBytes int
}

func newRing(messages, bytes int) ring {
	return ring{slots: make([]meshsync.Message, messages), maxBytes: bytes}
}

// push tells whether the message fitted.
func (r *ring) push(m meshsync.Message) bool {
	if r.n == len(r.slots) || r.bytes+size(m) > r.maxBytes {
		return false
	}
	r.slots[(r.head+r.n)%len(r.slots)] = m
	r.n++
	r.bytes += size(m)
	return true
}

// front is the oldest message; the ring must not be empty.
func (r *ring) front() meshsync.Message { return r.slots[r.head] }

// pop takes the oldest message; the ring must not be empty.
func (r *ring) pop() meshsync.Message {
	m := r.slots[r.head]
	r.slots[r.head] = meshsync.Message{} // or the ring would hold its data for long
	r.head = (r.head + 1) % len(r.slots)
	r.n--
	r.bytes -= size(m)
	return m
}

// clear forgets all messages and returns how many there were.
func (r *ring) clear() int {
	n := r.n
	for r.n > 0 {
		r.pop()
	}
	return n
}

func size(m meshsync.Message) int { return len(m.Subject) + len(m.Data) + headerSize(m.Header) }
