package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// watchdog tells a server that is slow from one that is dead, while checks wait for it.
// A slow one answers something in a while: another call, or a PING on a connection of its
// own. One from which nothing is received for the budget is dead, however busy it may be:
// what waits for it could not be answered in time.
//
//	0          budget/4                  budget (at least deadAfter)
//	├─ nothing ─┼─ a PING is under way ───┤ dead: the breaker opens, fail modes answer
//
// Time is counted in the watchdog's own ticks, and late ones count for little: while this
// process does not run, no answer can be read, and where processors are short, Redis may
// have to wait for one too.
type watchdog struct {
	patience time.Duration // the budget, at least deadAfter
	ping     func(ctx context.Context) error
	dead     func(why *store.Error)
	born     time.Time
	heard    atomic.Int64 // when the server answered last, whatever it was: ns since born

	// The others belong to the queue's lock.
	watching bool
	asked    time.Time     // since when it owes an answer; zero: it does not
	silent   time.Duration // nothing was received for that long
	pinging  bool          // a PING is under way
	pings    int           // that were answered
}

const (
	watchEvery = 5 * time.Millisecond
	// deadAfter is the least time without an answer after which a server counts as dead. The
	// last ticks before are shorter, watchClosely, so that it is no longer than it must be: what
	// waits for it is still answered within 50 ms.
	deadAfter    = 46 * time.Millisecond
	watchClosely = time.Millisecond
	// watchOn is for how many ticks the watchdog goes on while nobody waits: to start it
	// anew would cost more than to let it run.
	watchOn = 20
	// lostAfter is how many PINGs are answered while a call is not, before its connection
	// counts as lost: Redis executes commands one after the other.
	lostAfter = 7
)

// watch starts the watchdog unless it is running. It needs the lock.
func (q *queue) watch() {
	if !q.watching {
		q.watching, q.silent = true, 0
		go q.watchOver()
	}
}

func (q *queue) watchOver() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	last, heard, idle, closely := time.Now(), q.heard.Load(), 0, false
	for idle <= watchOn {
		<-ticker.C
		// A timer's goroutine is run at once, one that has an answer to read waits behind all
		// that are ready: so does this one from here on.
		runtime.Gosched()
		now := time.Now()
		step := min(now.Sub(last), watchEvery)
		if now.Sub(last) > 2*watchEvery {
			step = watchEvery / 4 // this process had to wait, and so perhaps had Redis
		}
		last, idle = now, idle+1
		q.mu.Lock()
		asked := len(q.underway) > 0 || now.Sub(q.sent) <= 2*watchEvery
		if asked || q.jobs > 0 {
			idle = 0
		}
		q.watching = idle <= watchOn
		q.silent += step
		if at := q.heard.Load(); at != heard || !asked {
			heard, q.silent, q.asked = at, step, time.Time{}
			if len(q.underway) > 0 {
				q.asked = q.born.Add(time.Duration(at))
				if sent := q.underway[0].sent; sent.After(q.asked) {
					q.asked = sent
				}
			}
		}
		if q.asked.IsZero() {
			q.silent = 0
		} else {
			q.silent = min(q.silent, now.Sub(q.asked))
		}
		if near := q.silent >= q.patience-2*watchEvery; near != closely {
			closely = near
			every := watchEvery
			if near {
				every = watchClosely
			}
			ticker.Reset(every)
		}
		dead := q.look(now, step)
		q.mu.Unlock()
		if dead != nil {
			q.dead(dead)
		}
	}
}

// hear notes that the server has answered.
func (w *watchdog) hear() { w.heard.Store(int64(time.Since(w.born))) }

// look is one tick. It returns why the server is dead, nil if it is not.
func (q *queue) look(now time.Time, step time.Duration) *store.Error {
	if q.silent < sendWithin(q.budget) { // what came since the latest answer waits for what turns out
		q.waiting = slices.DeleteFunc(q.waiting, func(j *job) bool {
			err := j.late(now)
			if err != nil {
				q.leave(j)
				q.drop(j, err)
			}
			return err != nil
		})
	}
	oldest := time.Duration(0)
	for i := len(q.underway) - 1; i >= 0; i-- {
		b := q.underway[i]
		b.age += step
		if oldest = max(oldest, b.age); b.age >= q.patience && q.pings-b.pings >= lostAfter {
			q.lose(b, errors.New("redis answers on other connections, this one is lost"))
			q.startFlusher() // for the rest of its jobs
		}
	}
	// One connection may be silent while others are not.
	if max(q.silent, oldest) >= q.patience/4 && !q.pinging {
		q.pinging = true
		go q.pingOnce()
	}
	if q.silent < q.patience {
		return nil
	}
	why := fmt.Errorf("redis has been silent for %v", q.silent.Round(time.Millisecond))
	for len(q.underway) > 0 {
		q.lose(q.underway[0], why)
	}
	q.silent, q.asked = 0, time.Time{}
	return &store.Error{Reason: quota.ReasonRedisTimeout, Err: why}
}

// pingOnce asks the server for a sign of life, for so long that one PING that is lost too does
// not keep others from being sent.
func (q *queue) pingOnce() {
	ctx, cancel := context.WithTimeout(context.Background(), min(dialTimeout, q.patience))
	defer cancel()
	err := q.ping(ctx)
	q.mu.Lock()
	if q.pinging = false; err == nil {
		q.pings++
		q.hear()
	}
	q.mu.Unlock()
	if e := classify(err); err != nil && (e.Reason == quota.ReasonRedisDown || e.Reason == quota.ReasonRedisRefused) {
		q.dead(e)
	}
}
