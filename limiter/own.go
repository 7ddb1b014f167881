package limiter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// An admission with an Idempotency-Key is remembered by the process that answered, for as long as
// it is replayed. It decides by that while the store is away, and writes what it has
// admitted by itself when the store is back. Where that has another record by then, that one holds.

// earlier is the admission that this process remembers for the key of a query, nil for none. own asks
// for one that the store does not know yet.
func (l *Limiter) earlier(q *query, own bool) *store.Admission {
	if q.call.Record == "" {
		return nil
	}
	a := l.local.Earlier(&q.call)
	if a == nil || own && !a.Own {
		return nil
	}
	return a
}

// again answers with an earlier admission, since the store was not asked for this reason. The error is that of a
// key that came with another request.
func (l *Limiter) again(q *query, a *store.Admission, reason quota.Reason) (quota.Decision, error) {
	if a.Print != q.call.Print {
		return quota.Decision{}, errReused()
	}
	d := q.decision(&store.Verdict{Outcome: store.Replayed, StoreUS: l.localUS(), Earlier: a}, nil)
	if q.call.Op == store.OpReserve || a.Hold.ID != 0 {
		now := l.localUS
		if q.hold.stored = !a.Own; q.hold.stored {
			now = l.timeUS
		}
		q.holds(&store.Verdict{Outcome: store.Replayed, StoreUS: now(), Hold: a.Hold}, &d)
	}
	d.Basis, d.Mode, d.Reason = quota.BasisLocal, quota.ModeLocal, reason
	return d, nil
}

// own is what a process has admitted with an Idempotency-Key and the store does not know yet.
type own struct {
	added chan struct{}
	queue chan *store.Admission
	count atomic.Int64 // those of the queue, and those that are being written
}

// add takes note of an admission, if there is room; nil is none.
func (o *own) add(a *store.Admission) {
	if a != nil {
		o.count.Add(1)
		o.put(a)
		signal.Send(o.added)
	}
}

func (o *own) put(a *store.Admission) {
	select {
	case o.queue <- a:
	default:
		o.count.Add(-1)
	}
}

func (o *own) some() bool { return o.count.Load() > 0 }

// What waits for the store is written whenever that takes it. retryEvery is how often it is asked, writeMost for how much at once,
// and writeWithin how long that may take.
const (
	retryEvery  = 250 * time.Millisecond
	writeMost   = 256
	writeWithin = time.Second
)

// Run writes what this process has admitted with an Idempotency-Key and settled while the store was away, when
// it is back. It returns when ctx ends.
func (l *Limiter) Run(ctx context.Context) error {
	var writers sync.WaitGroup
	defer writers.Wait()
	writers.Go(func() {
		retry(ctx, l.pending.added, l.pending.some, l.settleSome)
		l.settleLast(context.WithoutCancel(ctx))
	})
	if s, ok := l.store.(store.Rememberer); ok {
		retry(ctx, l.own.added, l.own.some, func(ctx context.Context) bool { return l.remember(ctx, s) })
	}
	return nil
}

// retry has things written once some were added, until there are none; write reports whether it wrote any. It returns when ctx ends.
func retry(ctx context.Context, added <-chan struct{}, some func() bool, write func(ctx context.Context) bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-added:
		}
		for some() {
			within, cancel := context.WithTimeout(ctx, writeWithin)
			wrote := write(within)
			if cancel(); wrote {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryEvery):
			}
		}
	}
}

// remember writes what the store does not know, but for what a reset has dropped, and reports whether any is settled
// now. The rest waits behind all others, which may be on another server.
func (l *Limiter) remember(ctx context.Context, s store.Rememberer) bool {
	var all []*store.Admission
	asked := min(len(l.own.queue), writeMost)
	for range asked {
		if a := <-l.own.queue; l.local.Earlier(&store.Call{Record: a.Record}) == a {
			all = append(all, a)
		}
	}
	settled := make([]bool, len(all))
	s.Remember(ctx, all, func(a *store.Admission) int64 { return l.localUS() - a.US }, func(i int, kept bool) {
		settled[i] = true
		l.local.Settle(all[i], !kept)
	})
	rest := 0
	for i, a := range all {
		if !settled[i] {
			rest++
			l.own.put(a)
		}
	}
	l.own.count.Add(int64(rest - asked))
	return rest < asked
}
