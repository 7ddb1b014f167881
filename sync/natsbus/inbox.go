package natsbus

import (
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	meshsync "github.com/regiond/regiond/sync"
)

// arrivals is how many messages may lie between nats.go and the inbox. The inbox
// never waits for the reader, but nats.go reads hundreds of small messages at once,
// and on a busy machine several times before the inbox has its turn.
const arrivals = InboxMessages

// inbox stands between nats.go and the reader of Messages. One channel for all
// subscriptions keeps the order of the connection; the ring behind it bounds
// bytes as well as messages, and knows of each message that it drops, where
// nats.go tells only of the first in a row.
type inbox struct {
	in      chan *nats.Msg        // written by nats.go; its owner never closes it
	out     chan meshsync.Message // unbuffered: what is taken is gone from the ring
	drops   chan struct{}         // holds one
	metrics *metrics

	overflowed atomic.Bool                   // nats.go found in full
	subs       atomic.Pointer[subscriptions] // those of the present connection
}

// subscriptions all write to in.
type subscriptions struct {
	subs    []*nats.Subscription
	counted int // of their dropped messages; run's own
}

func newInbox(m *metrics) *inbox {
	return &inbox{
		in:      make(chan *nats.Msg, arrivals),
		out:     make(chan meshsync.Message),
		drops:   make(chan struct{}, 1),
		metrics: m,
	}
}

// run passes messages on until ctx is done.
func (b *inbox) run(ctx context.Context) {
	r := newRing(InboxMessages, InboxBytes)
	for {
		var out chan meshsync.Message // nil while there is nothing to give
		var next meshsync.Message
		if r.n > 0 {
			out, next = b.out, r.front()
		}
		select {
		case m := <-b.in:
			b.metrics.received()
			if !r.push(meshsync.Message{Subject: m.Subject, Data: m.Data, Header: fieldsOf(m.Header)}) {
				b.metrics.drop(dropReader, 1)
				signal(b.drops)
			}
			// nats.go tells of the first message that it drops in a row. The row is
			// over once in is empty, and only then is everything said.
			if len(b.in) == 0 && b.overflowed.Swap(false) {
				b.countOverflow()
				signal(b.drops)
			}
		case out <- next:
			r.pop()
		case <-ctx.Done():
			return
		}
	}
}

// overflow notes that nats.go has begun to drop.
func (b *inbox) overflow() {
	b.overflowed.Store(true)
	signal(b.drops)
}

// countOverflow counts what nats.go has dropped since the last time.
func (b *inbox) countOverflow() {
	s := b.subs.Load()
	if s == nil {
		return
	}
	total := 0
	for _, sub := range s.subs {
		if n, err := sub.Dropped(); err == nil {
			total += n
		}
	}
	b.metrics.drop(dropReader, max(0, total-s.counted))
	s.counted = total
}

// signal has something in a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
