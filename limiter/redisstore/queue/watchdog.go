package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
type watchdog struct {
	patience time.Duration // the budget, at least deadAfter
	ping     func(ctx context.Context) *store.Error
	dead     func(why *store.Error)

	// The others belong to the queue's lock.
	watching   bool
	answeredAt time.Time // when the server answered last, whatever it was
	owing      time.Time // since when it owes an answer; zero: it does not
	pinging    bool      // a PING is under way
	pings      int       // that were answered
}

const (
	watchEvery = 5 * time.Millisecond
	// deadAfter is the least time without an answer after which a server counts as dead. The
	// last ticks before are shorter, watchClosely, so that it is no longer than it must be: what
	// waits for it is still answered within 50 ms, of which a busy machine may need some for the fail mode.
	deadAfter    = 42 * time.Millisecond
	watchClosely = time.Millisecond
	// watchOn is how long the watchdog goes on while nobody waits: to start it anew would
	// cost more than to let it run.
	watchOn = 100 * time.Millisecond
	// lostAfter is how many PINGs are answered while a call is not, before its connection
	// counts as lost: Redis executes commands one after the other.
	lostAfter = 7
	// pingTimeout is for how long a PING is waited for: a connection is dialled meanwhile.
	pingTimeout = 250 * time.Millisecond
)

// silence is how long a server has owed an answer, counted in the watchdog's own ticks. Late
// ones count for little: while this process does not run, no answer can be read, and where
// processors are short, Redis may have to wait for one too.
type silence struct {
	last  time.Time // tick
	owing time.Time
	quiet time.Duration
}

// tick returns how long the server has been silent, which owes an answer since owing.
func (s *silence) tick(now, owing time.Time) time.Duration {
	step := min(now.Sub(s.last), watchEvery+watchClosely)
	if now.Sub(s.last) > 2*watchEvery {
		step = watchEvery / 4
	}
	s.last, s.quiet = now, s.quiet+step
	if owing != s.owing { // it has answered since
		s.owing, s.quiet = owing, step
	}
	if owing.IsZero() {
		s.quiet = 0
	}
	s.quiet = min(s.quiet, now.Sub(owing))
	return s.quiet
}

// watch starts the watchdog unless it is running. It needs the lock.
func (q *Queue) watch() {
	if !q.watching {
		q.watching = true
		go q.watchOver()
	}
}

func (q *Queue) watchOver() {
	s, every := silence{last: time.Now()}, watchEvery
	for watching := true; watching; {
		time.Sleep(every)
		// A timer's goroutine is run at once, one that has an answer to read waits behind all
		// that are ready: so does this one from here on.
		runtime.Gosched()
		now := time.Now()
		q.mu.Lock()
		if len(q.underway) == 0 && now.Sub(q.sent) > 2*watchEvery {
			q.owing = time.Time{}
		}
		quiet := s.tick(now, q.owing)
		if every = watchEvery; quiet >= q.patience-2*watchEvery {
			every = watchClosely
		}
		dead := q.look(now, quiet)
		watching = q.jobs > 0 || len(q.underway) > 0 || now.Sub(q.sent) <= watchOn
		q.watching = watching
		q.mu.Unlock()
		if dead != nil {
			q.dead(dead)
		}
	}
}

// noteAnswer notes that the server has answered. What is still under way it owes from now on.
func (q *Queue) noteAnswer() {
	q.answeredAt, q.owing = time.Now(), time.Time{}
	if len(q.underway) > 0 {
		q.owing = q.answeredAt
	}
}

// Patience is for how long the server may be silent.
func (q *Queue) Patience() time.Duration { return q.patience }

// LastAnswered is when the server answered last, whatever it was.
func (q *Queue) LastAnswered() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.answeredAt
}

// look is one tick, after the server was quiet for so long. It returns why the server is
// dead, nil if it is not.
func (q *Queue) look(now time.Time, quiet time.Duration) *store.Error {
	if quiet < sendWithin(q.budget) { // what came since the latest answer waits for what turns out
		q.waiting = slices.DeleteFunc(q.waiting, func(j *job) bool {
			err := j.late(now)
			if err != nil {
				q.drop(j, err)
			}
			return err != nil
		})
	}
	oldest := time.Duration(0)
	for _, b := range slices.Clone(q.underway) {
		age := now.Sub(b.sent)
		oldest = max(oldest, age)
		if age >= q.patience && q.pings-b.pings >= lostAfter {
			q.lose(b, errors.New("redis answers on other connections, this one is lost"))
			q.startFlusher() // for the rest of its jobs
		}
	}
	// One connection may be silent while others are not.
	if max(quiet, oldest) >= q.patience/4 && !q.pinging {
		q.pinging = true
		go q.pingOnce()
	}
	if quiet < q.patience {
		return nil
	}
	why := fmt.Errorf("redis has been silent for %v", quiet.Round(time.Millisecond))
	for len(q.underway) > 0 {
		q.lose(q.underway[0], why)
	}
	q.owing = time.Time{}
	return &store.Error{Reason: quota.ReasonRedisTimeout, Err: why}
}

// pingOnce asks the server for a sign of life, for so long that one PING that is lost too does
// not keep others from being sent.
func (q *Queue) pingOnce() {
	ctx, cancel := context.WithTimeout(context.Background(), min(pingTimeout, q.patience))
	defer cancel()
	err := q.ping(ctx)
	q.mu.Lock()
	if q.pinging = false; err == nil {
		q.pings++
		q.noteAnswer()
	}
	q.mu.Unlock()
	if err != nil && (err.Reason == quota.ReasonRedisDown || err.Reason == quota.ReasonRedisRefused) {
		q.dead(err)
	}
}
