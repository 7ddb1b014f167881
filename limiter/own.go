package limiter

import (
	"context"
	"sync"
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
	d.Basis, d.Mode, d.Reason = quota.BasisLocal, quota.ModeLocal, reason
	return d, nil
}

// own is what a process has admitted with an Idempotency-Key and the store does not know yet.
type own struct {
	wake chan struct{}

	mu  sync.Mutex
	all []*store.Admission
}

// add takes note of an admission; nil is none.
func (o *own) add(a *store.Admission) {
	if a == nil {
		return
	}
	o.mu.Lock()
	if len(o.all) < localRecords {
		o.all = append(o.all, a)
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *own) some() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all) > 0
}

const (
	// rememberEvery is how often the store is asked to keep what this process has admitted, and
	// rememberMost how many at once.
	rememberEvery = 250 * time.Millisecond
	rememberMost  = 256
)

// Run writes what this process has admitted with an Idempotency-Key while the store was away, when
// it is back. It returns when ctx ends.
func (l *Limiter) Run(ctx context.Context) error {
	s, ok := l.store.(store.Rememberer)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.own.wake:
		}
		for ok && l.own.some() {
			if l.remember(ctx, s) {
				continue
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(rememberEvery):
			}
		}
	}
}

// remember writes some of what the store does not know, and reports whether any is known now. The rest waits
// behind all others, which may be on another server.
func (l *Limiter) remember(ctx context.Context, s store.Rememberer) bool {
	l.own.mu.Lock()
	some := l.own.all[:min(len(l.own.all), rememberMost)]
	l.own.mu.Unlock()
	var all []*store.Admission // without those that a reset has dropped
	for _, a := range some {
		if l.local.Earlier(&store.Call{Record: a.Record}) == a {
			all = append(all, a)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	settled := make([]bool, len(all))
	s.Remember(ctx, all, func(a *store.Admission) int64 { return l.localUS() - a.US }, func(i int, kept bool) {
		settled[i] = true
		l.local.Settle(all[i], !kept)
	})
	var rest []*store.Admission
	for i, a := range all {
		if !settled[i] {
			rest = append(rest, a)
		}
	}
	l.own.mu.Lock()
	defer l.own.mu.Unlock()
	if l.own.all = append(l.own.all[len(some):], rest...); len(l.own.all) == 0 {
		l.own.all = nil
	}
	return len(rest) < len(some)
}
