package natsbus

import (
	meshsync "github.com/regiond/regiond/sync"
)

// ring is a queue bounded in messages and in bytes. It is not safe for
// concurrent use.
type ring struct {
	slots    []slot
	head     int // the oldest
	n        int
	bytes    int
	maxBytes int
}

// slot has the size of its message, which is not ours to read once it was given away.
type slot struct {
	m     meshsync.Message
	bytes int
}

func newRing(messages, bytes int) ring {
	return ring{slots: make([]slot, messages), maxBytes: bytes}
}

// push tells whether the message fitted.
func (r *ring) push(m meshsync.Message) bool {
	s := slot{m, size(m)}
	if r.n == len(r.slots) || r.bytes+s.bytes > r.maxBytes {
		return false
	}
	r.slots[(r.head+r.n)%len(r.slots)] = s
	r.n++
	r.bytes += s.bytes
	return true
}

// front is the oldest message; the ring must not be empty.
func (r *ring) front() meshsync.Message { return r.slots[r.head].m }

// pop takes the oldest message; the ring must not be empty.
func (r *ring) pop() meshsync.Message {
	s := r.slots[r.head]
	r.slots[r.head] = slot{} // or the ring would hold its data for long
	r.head = (r.head + 1) % len(r.slots)
	r.n--
	r.bytes -= s.bytes
	return s.m
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
