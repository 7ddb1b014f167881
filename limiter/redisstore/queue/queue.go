package queue

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// Queue is the checks that wait for one server. It is safe for concurrent use.
type Queue struct {
	budget time.Duration
	spans  *scriptSpans // nil: no call is traced
	send   func(ctx context.Context, calls []store.Call, verdicts []store.Verdict) (endedUS int64)
	watchdog

	mu       sync.Mutex
	price    price
	each     float64       // weight of each check beside its own
	load     float64       // weight of all checks that wait or are under way
	sent     time.Time     // when the latest call was
	trip     time.Duration // how long calls take: at once if they take less, slowly if they take more
	away     bool          // the server was lost since the latest job
	jobs     int           // that wait or are under way
	waiting  []*job        // those that have checks to send, in turn, jobs of a single check first
	singles  int           // how many of those these are,
	first    float64       // and their weight
	underway []*batch
	flushers int           // goroutines that are about a call
	fastest  time.Duration // the fastest call since the last probe; 0: there was none
}

// Options say which server a Queue is for.
type Options struct {
	// Budget is how long a check may take, and DeadAfter the least silence of a server that counts as dead; 0 means 42 ms.
	Budget, DeadAfter time.Duration
	// Send has the server decide calls, and returns when that had done so, µs of its clock, or 0.
	Send func(ctx context.Context, calls []store.Call, verdicts []store.Verdict) (endedUS int64)
	// Ping asks the server for a sign of life.
	Ping func(ctx context.Context) *store.Error
	// Dead is called when the server is found dead. Drain is to follow.
	Dead   func(why *store.Error)
	Tracer trace.Tracer // nil: no call is traced
	Addr   string       // of the server, for spans
}

// New returns an empty queue.
func New(o Options) *Queue {
	return &Queue{
		budget: o.Budget, spans: newScriptSpans(o.Tracer, o.Addr), send: o.Send, price: price{cost: weightCost, call: callWeight},
		watchdog: watchdog{patience: max(o.Budget, cmp.Or(o.DeadAfter, deadAfter)), ping: o.Ping, dead: o.Dead},
	}
}

// Apart says that each check is a script call of its own, sent with others in a pipeline.
func (q *Queue) Apart() { q.each, q.price.call = callWeight, 0 }

// weight is what a check costs the server, in all.
func (q *Queue) weight(c *store.Call) float64 { return q.each + weight(c) }

const (
	// fewFlushers are calls under way at any time: a second one keeps Redis busy while we
	// decode the first.
	fewFlushers = 2
	// MostCalls are under way while half a call waits: where this process waits for a
	// processor, a call is under way for ten times as long as Redis needs for it.
	MostCalls = 8
	// underWay is how long Redis may need for all calls under way: who comes next waits for
	// that long, a PING too.
	underWay = 6 * callTime
)

// Parts of the budget that all that waits may take, see admit.
const roomBeyondShare, roomWithinShare, roomOfSingle = 0.4, 0.5, 0.6

// sendWithin is the part of the budget after which a check that waits is not sent any
// more: a call needs the rest.
func sendWithin(budget time.Duration) time.Duration { return budget * 3 / 5 }

// job is what one caller submitted. All fields but done belong to the queue's lock.
type job struct {
	calls    []store.Call
	verdicts []store.Verdict
	first    int             // calls[first:end] are still to be sent
	end      int             // those after it were shed at once
	sendBy   time.Time       // when the others are shed
	ctx      context.Context //nolint:containedctx // the caller's, for as long as it waits
	span     trace.Span      // of the request, if that is sampled; else nil
	gone     bool            // nobody waits for what is under way of it
	done     chan struct{}   // has an element when all verdicts are set
}

// batch is the checks of one call, kept for the flusher's next.
type batch struct {
	parts    []part
	calls    []store.Call
	verdicts []store.Verdict
	weight   float64
	sent     time.Time
	lost     bool // nobody waits for it any more
	pings    int  // that were answered, or under way, when it was sent
}

// storeUS is when Redis began with the first call that it decided, 0 for none.
func (b *batch) storeUS() int64 {
	for i := range b.verdicts {
		if us := b.verdicts[i].StoreUS; us > 0 {
			return us
		}
	}
	return 0
}

// answered is whether the server answered any of the calls, an error included.
func (b *batch) answered() bool {
	return slices.ContainsFunc(b.verdicts, func(v store.Verdict) bool {
		if v.StoreUS > 0 {
			return true
		}
		_, replied := errors.AsType[redis.Error](v.Err)
		return replied
	})
}

// part is calls[from:to] of a job.
type part struct {
	job      *job
	from, to int
	span     trace.Span // of the job
}

var (
	errBusy = &store.Error{Reason: quota.ReasonOverloaded, Err: errors.New("redis is busy, the check would have waited too long")}
	errLate = &store.Error{Reason: quota.ReasonOverloaded, Ambiguous: true, Err: errors.New("redis has not answered by the caller's deadline")}
	errGone = &store.Error{Reason: quota.ReasonRedisTimeout, Err: errors.New("the request was cancelled")}
)

// trialEvery is how often a server that takes longer than its callers wait is tried again.
const trialEvery = 50 * time.Millisecond

// Submit has calls decided and fills their verdicts; an error is in the verdict of its
// call. What is not Ambiguous was not charged. After an Ambiguous error the calls must not
// be changed: they may still be read.
func (q *Queue) Submit(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	j := &job{ctx: ctx, calls: calls, verdicts: verdicts, span: q.spans.of(ctx), end: len(calls), done: make(chan struct{}, 1)}
	now := time.Now()
	left, deadline := q.budget, (<-chan struct{})(nil)
	until, timed := ctx.Deadline()
	if timed {
		left = min(left, until.Sub(now))
		if quota.HasCallersDeadline(ctx) {
			deadline = ctx.Done()
		}
	}
	q.mu.Lock()
	j.sendBy = now.Add(sendWithin(left))
	switch {
	case deadline != nil && q.trip > until.Sub(now) && now.Sub(q.sent) < trialEvery:
		j.shed(0, errBusy)
		j.done <- struct{}{}
	case q.admit(j, now, left):
		q.jobs++
		q.enqueue(j)
		q.startFlusher()
		q.watch()
	default:
		j.done <- struct{}{}
	}
	q.mu.Unlock()
	select {
	case <-j.done:
	case <-deadline:
		q.leaveBehind(j)
	}
}

// leaveBehind answers a job whose caller's deadline has come. It may be part of a call under way.
func (q *Queue) leaveBehind(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(j.done) > 0 {
		return
	}
	if i := slices.Index(q.waiting, j); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.drop(j, errBusy)
		return
	}
	for _, b := range q.underway {
		for _, p := range b.parts {
			if p.job == j {
				store.Fail(j.verdicts[p.from:p.to], errLate)
			}
		}
	}
	j.gone = true
	q.answer(j, errBusy)
}

// enqueue has a job wait. A single check waits for no batch.
func (q *Queue) enqueue(j *job) {
	if len(j.calls) > 1 {
		q.waiting = append(q.waiting, j)
		return
	}
	q.waiting = slices.Insert(q.waiting, q.singles, j)
	q.singles, q.first = q.singles+1, q.first+q.weight(&j.calls[0])
}

// leave is called for a job that waits no more.
func (q *Queue) leave(j *job) {
	if len(j.calls) > 1 {
		return
	}
	if q.singles, q.first = q.singles-1, q.first-q.weight(&j.calls[0]); q.singles == 0 {
		q.first = 0
	}
}

// startFlusher has one more send what waits, unless there are enough.
func (q *Queue) startFlusher() {
	if len(q.waiting) == 0 || q.room() == 0 || q.flushers >= fewFlushers && (q.flushers >= MostCalls || !q.worthMore()) {
		return
	}
	q.flushers++
	go q.flush()
}

// admit sheds the calls of a job that Redis will not come to in time, and reports whether
// any is left. How long what waits may take depends on who asks: a job that has more than
// each would have if all had the same finds the least room, a single check the most: nothing
// but what is under way and other single checks is before it. So single checks pass beside
// any batches, and the first checks of all jobs before the others.
func (q *Queue) admit(j *job, now time.Time, left time.Duration) bool {
	if q.away { // it is expected to be as slow as before
		q.away, q.price.last = false, now
	} else if q.jobs == 0 {
		q.price.idle(now)
	}
	room := max(leastWaiting, q.price.within(left))
	share, own, ahead := room*roomWithinShare/float64(q.jobs+1), 0.0, q.load
	if len(j.calls) == 1 {
		ahead = q.sentWeight() + q.first
	}
	for i := range j.calls {
		w := q.weight(&j.calls[i])
		part := roomBeyondShare
		switch {
		case len(j.calls) == 1:
			part = roomOfSingle
		case own+w <= share:
			part = roomWithinShare
		}
		if ahead+own+w > part*room && (i > 0 || q.jobs > 0) {
			j.shed(i, errBusy)
			break
		}
		own += w
	}
	q.load += own
	return j.end > 0
}

// shed gives the calls from a place on an error; they will not be sent.
func (j *job) shed(from int, why error) {
	for i := from; i < j.end; i++ {
		j.verdicts[i].Err = why
	}
	j.end = from
}

// flush sends batches until nothing waits, or its call was given up.
func (q *Queue) flush() {
	for b := (&batch{}); ; {
		runtime.Gosched() // callers that are about to submit may still come along
		if !q.take(b) {
			return
		}
		ctx, span := q.spans.start(context.Background(), b)
		ended := q.send(ctx, b.calls, b.verdicts)
		if span != nil {
			concluded(span, b)
			span.End()
		}
		if !q.settle(b, ended) {
			return
		}
	}
}

// worthMore is whether so much waits that more calls are worth it.
func (q *Queue) worthMore() bool {
	waits := q.load - q.sentWeight()
	return waits > q.callSize()/2 && waits >= q.room()
}

// sentWeight is the weight of the checks that are under way.
func (q *Queue) sentWeight() (weight float64) {
	for _, b := range q.underway {
		weight += b.weight
	}
	return weight
}

// callSize is the weight of a full call: two of them at least may be under way.
func (q *Queue) callSize() float64 {
	return max(leastWeight, min(q.price.perCall(), q.price.within(underWay)/2))
}

// room is the weight that the next call may carry: as much as all calls under way leave, 0 if
// that is not worth a call. One may be under way in any case.
func (q *Queue) room() float64 {
	size := q.callSize()
	if len(q.underway) == 0 {
		return size
	}
	if left := q.price.within(underWay) - q.sentWeight(); left > size/2 {
		return min(size, left)
	}
	return 0
}

// take fills a batch from the waiting jobs, each in its turn with its share of two calls:
// while one is under way, the other half of the jobs is in the next. It is false if there is nothing to send: the flusher ends.
func (q *Queue) take(b *batch) bool {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	room := q.room()
	if room == 0 || q.flushers > fewFlushers && !q.worthMore() {
		q.flushers--
		return false
	}
	turn := 2 * room / float64(max(1, len(q.waiting)))
	taken := 0
	for ; taken < len(q.waiting) && b.weight < room; taken++ {
		j := q.waiting[taken]
		if err := j.late(now); err != nil {
			q.drop(j, err)
			continue
		}
		from, own := j.first, 0.0
		for ; j.first < j.end; j.first++ {
			w := q.weight(&j.calls[j.first])
			if j.first > from && own+w > turn || b.weight > 0 && b.weight+w > room {
				break
			}
			own, b.weight = own+w, b.weight+w
		}
		if from == j.first { // no room for even one
			break
		}
		q.leave(j)
		b.parts = append(b.parts, part{j, from, j.first, j.span})
		b.calls = append(b.calls, j.calls[from:j.first]...)
	}
	q.waiting = slices.Delete(q.waiting, 0, taken)
	if len(b.parts) == 0 {
		q.flushers--
		return false
	}
	b.verdicts = store.Blank(b.verdicts, len(b.calls))
	b.sent, b.pings, q.sent = now, q.pings, now
	if q.owing.IsZero() {
		q.owing = now
	}
	if q.pinging {
		b.pings++
	}
	q.underway = append(q.underway, b)
	return true
}

// late is why a job is not sent any more.
func (j *job) late(now time.Time) error {
	switch {
	case now.After(j.sendBy):
		return errBusy
	case errors.Is(j.ctx.Err(), context.Canceled):
		return errGone
	}
	return nil
}

// drop answers a job that waits. The caller takes it out of those that do.
func (q *Queue) drop(j *job, why error) {
	q.leave(j)
	q.answer(j, why)
}

// answer sheds what a job has still to send, and answers it.
func (q *Queue) answer(j *job, why error) {
	for i := j.first; i < j.end; i++ {
		q.load -= q.weight(&j.calls[i])
	}
	j.shed(j.first, why)
	q.jobs--
	j.done <- struct{}{}
}

// settle hands out the verdicts of a batch, with which the server had done at endedUS. It is
// false if nobody waits for them any more: the flusher ends.
func (q *Queue) settle(b *batch, endedUS int64) bool {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if b.lost {
		return false
	}
	q.remove(b)
	if b.answered() {
		q.noteAnswer()
	}
	took := now.Sub(b.sent)
	q.trip = min(took, q.trip+(took-q.trip)/4)
	if q.fastest == 0 || took < q.fastest {
		q.fastest = took
	}
	if began := b.storeUS(); began > 0 && endedUS > 0 {
		q.price.answered(b.weight, b.sent, now, began, endedUS)
	}
	at := 0
	for _, p := range b.parts {
		n := p.to - p.from
		q.deliver(p, b.verdicts[at:at+n])
		at += n
	}
	clear(b.calls)
	clear(b.parts)
	*b = batch{parts: b.parts[:0], calls: b.calls[:0], verdicts: b.verdicts}
	return true
}

// deliver hands out the verdicts of a part, which has returned.
func (q *Queue) deliver(p part, verdicts []store.Verdict) {
	j := p.job
	if j.gone {
		return
	}
	for i := range verdicts {
		// Exchanged with the slices that they hold, so that both sides can use them again.
		j.verdicts[p.from+i], verdicts[i] = verdicts[i], j.verdicts[p.from+i]
	}
	if j.first < j.end {
		q.waiting = append(q.waiting, j)
		return
	}
	q.jobs--
	j.done <- struct{}{}
}

// remove takes a batch out of those under way.
func (q *Queue) remove(b *batch) {
	q.load -= b.weight
	q.underway = slices.DeleteFunc(q.underway, func(o *batch) bool { return o == b })
}

// lose gives up a batch: what became of its checks is unknown.
func (q *Queue) lose(b *batch, why error) {
	q.remove(b)
	q.flushers--
	b.lost = true
	for _, p := range b.parts {
		unknown := make([]store.Verdict, p.to-p.from)
		store.Fail(unknown, &store.Error{Reason: quota.ReasonRedisTimeout, Ambiguous: true, Err: why})
		q.deliver(p, unknown)
	}
}

// Need is what the fastest call since the last one took, 0 for none.
func (q *Queue) Need() (fastest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	fastest, q.fastest = q.fastest, 0
	return fastest
}

// Drain answers all that wait with an error: the server is away.
func (q *Queue) Drain(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.away = true
	for _, j := range q.waiting {
		q.drop(j, why)
	}
	q.waiting = nil
}
