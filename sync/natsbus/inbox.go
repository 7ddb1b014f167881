package natsbus

import (
	"context"

	"github.com/nats-io/nats.go"

	meshsync "github.com/regiond/regiond/sync"
)

// receive passes messages from nats.go to the reader of Messages, until ctx is done. It
// never waits for the reader: it bounds messages as well as bytes, and drops the newest.
func (b *Bus) receive(ctx context.Context) {
	var inbox []meshsync.Message
	var bytes, counted int64 // in inbox, and of the messages that nats.go dropped
	for {
		var out chan<- meshsync.Message // nil while there is nothing to deliver
		var next meshsync.Message
		var nextBytes int64
		if len(inbox) > 0 {
			out, next, nextBytes = b.messages, inbox[0], size(inbox[0])
		}
		select {
		case msg := <-b.arrived:
			b.metrics.arrived.Add(1)
			m := meshsync.Message{Subject: msg.Subject, Data: msg.Data, Header: fieldsOf(msg.Header)}
			dropped := b.overflow() - counted
			counted += dropped
			if len(inbox) == InboxMessages || bytes+size(m) > InboxBytes {
				dropped++
			} else {
				inbox, bytes = append(inbox, m), bytes+size(m)
			}
			if dropped > 0 {
				b.metrics.drop(dropReader, dropped)
			}
		case out <- next:
			inbox[0] = meshsync.Message{} // or the array would hold its data for long
			inbox, bytes = inbox[1:], bytes-nextBytes
		case <-ctx.Done():
			return
		}
	}
}

// overflow is how many messages nats.go has dropped because arrived was full. It reads
// hundreds of small messages at once, and on a busy machine several times before receive
// has its turn.
func (b *Bus) overflow() (n int64) {
	if subs := b.subscriptions.Load(); subs != nil {
		for _, sub := range *subs {
			if dropped, err := sub.Dropped(); err == nil { // not closed
				n += int64(dropped)
			}
		}
	}
	return n
}

// size is the bytes of a message. A header on the wire is "NATS/1.0\r\n", lines
// "name: value\r\n", and "\r\n".
func size(m meshsync.Message) int64 {
	n := len(m.Subject) + len(m.Data)
	if len(m.Header) > 0 {
		n += len("NATS/1.0\r\n\r\n")
	}
	for _, f := range m.Header {
		n += len(f.Name) + len(f.Value) + len(": \r\n")
	}
	return int64(n)
}

// headerOf keeps the case of names, which the methods of nats.Header may change.
func headerOf(fields []meshsync.Field) nats.Header {
	h := make(nats.Header, len(fields))
	for _, f := range fields {
		h[f.Name] = append(h[f.Name], f.Value)
	}
	return h
}

// fieldsOf is the header that arrived; nil for none and for one beyond the bounds of
// sync, which was not written by a regiond.
func fieldsOf(h nats.Header) (fields []meshsync.Field) {
	for name, values := range h {
		for _, value := range values {
			if len(fields) == meshsync.MaxFields || len(name)+len(value) > meshsync.MaxFieldBytes {
				return nil
			}
			fields = append(fields, meshsync.Field{Name: name, Value: value})
		}
	}
	return fields
}
