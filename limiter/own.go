package limiter

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
func (q *query) again(a *store.Admission, reason quota.Reason) (quota.Decision, error) {
	if a.Print != q.call.Print {
		return quota.Decision{}, errReused()
	}
	d := q.decision(&store.Verdict{Outcome: store.Replayed, Earlier: a}, nil)
	if q.call.Op == store.OpReserve {
		q.holds(&store.Verdict{Outcome: store.Replayed, StoreUS: a.US, Hold: a.Hold}, &d)
	}
	d.Basis, d.Mode, d.Reason = quota.BasisLocal, quota.ModeLocal, reason
	return d, nil
}

// own is what a process has admitted with an Idempotency-Key and the store does not know yet.
type own struct {
	queue chan *store.Admission
	count atomic.Int64 // those of the queue, and those that are being written
}

// add takes note of an admission, if there is room; nil is none.
func (o *own) add(a *store.Admission) {
	if a != nil {
		o.count.Add(1)
		o.put(a)
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

const (
	// rememberEvery is how often the store is asked to keep what this process has admitted, and
	// rememberMost how many at once.
	rememberEvery = 250 * time.Millisecond
	rememberMost  = 256
)

// Run writes what this process has admitted with an Idempotency-Key and settled while the store was away, when
// it is back. It returns when ctx ends.
func (l *Limiter) Run(ctx context.Context) error {
	var settles sync.WaitGroup
	settles.Go(func() { l.settlePending(ctx) })
	defer settles.Wait()
	s, ok := l.store.(store.Rememberer)
	if !ok {
		<-ctx.Done()
		return nil
	}
	for {
		var all []*store.Admission
		select {
		case <-ctx.Done():
			return nil
		case a := <-l.own.queue:
			all = append(all, a)
		}
		for range min(len(l.own.queue), rememberMost-1) {
			all = append(all, <-l.own.queue)
		}
		if l.remember(ctx, s, all) {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rememberEvery):
		}
	}
}

// remember writes what the store does not know, but for what a reset has dropped, and reports whether any is settled
// now. The rest waits behind all others, which may be on another server.
func (l *Limiter) remember(ctx context.Context, s store.Rememberer, all []*store.Admission) bool {
	asked := len(all)
	all = slices.DeleteFunc(all, func(a *store.Admission) bool { return l.local.Earlier(&store.Call{Record: a.Record}) != a })
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
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
