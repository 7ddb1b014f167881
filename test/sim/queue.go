package sim

import (
	"container/heap"
	"time"
)

// kind is what an event does.
type kind uint8

const (
	kindCall    kind = iota // do is called
	kindMessage             // a message arrives at p
	kindWake                // p has something due
)

// event is something that will happen at a moment of virtual time. Events of one
// moment happen in the order in which they were added.
type event struct {
	at    time.Duration
	order uint64
	kind  kind
	p     *process
	msg   *message
	do    func()
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.order < f.order
}

// queue holds what will happen, calls apart from what the world does by itself.
type queue struct {
	calls, rest events
	added       uint64
}

func (q *queue) add(e event) {
	q.added++
	e.order = q.added
	if e.kind == kindCall {
		heap.Push(&q.calls, &e)
	} else {
		heap.Push(&q.rest, &e)
	}
}

// take removes the next event; nil if that comes after until.
func (q *queue) take(until time.Duration) *event {
	from := &q.rest
	if len(q.rest) == 0 || len(q.calls) > 0 && q.calls[0].before(q.rest[0]) {
		from = &q.calls
	}
	if len(*from) == 0 || (*from)[0].at > until {
		return nil
	}
	return heap.Pop(from).(*event)
}

// events is a heap.
type events []*event

func (h events) Len() int           { return len(h) }
func (h events) Less(i, j int) bool { return h[i].before(h[j]) }
func (h events) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *events) Push(e any) { *h = append(*h, e.(*event)) }

// Pop implements heap.Interface.
func (h *events) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
