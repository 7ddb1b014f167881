package natsbus

import (
	"errors"
	"sync"

	meshsync "github.com/regiond/regiond/sync"
)

// What Publish may answer. In every case the message is gone.
var (
	// ErrDisconnected means that there is no connection to NATS.
	ErrDisconnected = errors.New("not connected to NATS")
	// ErrFull means that the socket is slower than we publish.
	ErrFull = errors.New("too much is waiting for the connection to NATS")
	// ErrTooLarge means more bytes than the server takes: sync.ErrTooLarge.
	ErrTooLarge = meshsync.ErrTooLarge
	// ErrSubject means a subject that is empty, has empty words, spaces or
	// wildcards.
	ErrSubject = errors.New("message has no valid subject")
)

// queue is what waits for the socket. It takes messages only while a connection
// is there, so that nothing in it is older than that.
type queue struct {
	wake chan struct{} // holds one: there is something to write

	mu      sync.Mutex
	open    bool
	maxSize int // bytes of a message that the server takes
	ring    ring
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), ring: newRing(QueueMessages, QueueBytes)}
}

// push copies data and header and never waits.
func (q *queue) push(subject string, data []byte, header ...meshsync.Field) error {
	if !validSubject(subject) {
		return ErrSubject
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open {
		return ErrDisconnected
	}
	m := meshsync.Message{Subject: subject, Data: data, Header: header}
	if len(data)+headerSize(header) > q.maxSize {
		return ErrTooLarge
	}
	// Copied under the lock, so that it is not copied in vain while the queue is
	// full; the writer's turn is as short.
	if q.ring.n == len(q.ring.slots) || q.ring.bytes+size(m) > q.ring.maxBytes {
		return ErrFull
	}
	m.Data, m.Header = append([]byte(nil), data...), append([]meshsync.Field(nil), header...)
	q.ring.push(m)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// pop takes the oldest message, if there is one.
func (q *queue) pop() (meshsync.Message, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ring.n == 0 {
		return meshsync.Message{}, false
	}
	return q.ring.pop(), true
}

// start takes messages of at most maxSize bytes from now on.
func (q *queue) start(maxSize int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open, q.maxSize = true, min(maxSize, MaxMessage)
}

// stop takes no more; what is queued stays for pop.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = false
}

// clear forgets what is queued and returns how much that was.
func (q *queue) clear() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ring.clear()
}
