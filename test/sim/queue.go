package sim

import "time"

// kind says what an event does.
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
	calls, rest heap
	added       uint64
}

func (q *queue) add(e event) {
	q.added++
	e.order = q.added
	q.heap(e.kind).add(e)
}

func (q *queue) heap(k kind) *heap {
	if k == kindCall {
		return &q.calls
	}
	return &q.rest
}

// first is the heap that the next event is in; nil when there is none.
func (q *queue) first() *heap {
	switch {
	case len(q.calls) == 0 && len(q.rest) == 0:
		return nil
	case len(q.rest) == 0 || len(q.calls) > 0 && q.calls[0].before(&q.rest[0]):
		return &q.calls
	}
	return &q.rest
}

// heap is a binary heap of events, without the interfaces of container/heap: it is
// the busiest thing here.
type heap []event

func (h *heap) add(e event) {
	*h = append(*h, e)
	q := *h
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !q[i].before(&q[up]) {
			return
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

// next is when the next event happens; false when there is none.
func (h *heap) next() (time.Duration, bool) {
	if len(*h) == 0 {
		return 0, false
	}
	return (*h)[0].at, true
}

func (h *heap) take() event {
	q := *h
	first := q[0]
	last := len(q) - 1
	q[0] = q[last]
	q[last] = event{}
	*h = q[:last]
	for i := 0; ; {
		least := i
		for down := 2*i + 1; down <= 2*i+2 && down < last; down++ {
			if q[down].before(&q[least]) {
				least = down
			}
		}
		if least == i {
			return first
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}
