package limiter

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
)

// collector batches the calls of concurrent checks. There is no timer: while a
// flusher's call is under way the next ones queue behind it, so an idle service
// sends at once and a busy one in batches.
//
//	caller ─ submit ─▶ queue ─ take ─▶ flusher ─ send ─▶ store
//	   ▲                                  │
//	   └───────────── done ◀──────────────┘
//
// A flusher is a goroutine that runs while calls are queued; there are at most
// maxFlushers.
type collector struct {
	budget time.Duration // from submit to answer, the queue included
	spans  *scriptSpans  // nil: no call is traced
	send   func(ctx context.Context, calls []Call, verdicts []Verdict) error

	mu       sync.Mutex
	queue    []*job
	flushers int

	jobs    sync.Pool // of *job that no other goroutine holds
	batches sync.Pool // of *batch
}

const (
	// maxBatch is the largest number of calls in one script call. With more, the first
	// waits for the last, up to a millisecond of Redis's time; with 64, batches of
	// requests queue, and throughput falls by a fifth.
	maxBatch = 128
	// maxFlushers bounds the calls under way to Redis. A second one keeps Redis
	// busy while we decode the first; a third brought nothing.
	maxFlushers = 2
)

// job is what one caller submitted. state decides between the flusher that
// wants to send it and the caller whose time ran out.
type job struct {
	calls    []Call
	verdicts []Verdict
	deadline time.Time // of the whole budget: a caller with less time must not shorten that of others in the batch
	state    atomic.Int32
	ctx      context.Context //nolint:containedctx // the caller's, for as long as it waits
	span     trace.Span      // of the request, if that is sampled; else nil
	err      error
	done     chan struct{} // has an element when verdicts and err are set
	timer    *time.Timer   // of the caller
}

// batch is what a flusher works with, kept for the next.
type batch struct {
	jobs     []*job
	calls    []Call
	verdicts []Verdict
}

const (
	jobWaiting   int32 = iota
	jobSent            // by a flusher; the outcome is in the store's hands
	jobWithdrawn       // by its caller; it will not be sent
)

// submit queues the calls and waits for their verdicts until the budget or ctx
// ends; see graceWait for the tenth of a budget beyond it. After an error the calls must
// not be changed: they may still be read. The verdicts' slices are used again.
func (c *collector) submit(ctx context.Context, calls []Call, verdicts []Verdict) error {
	now := time.Now()
	j := c.job(ctx, calls, now)
	c.mu.Lock()
	c.queue = append(c.queue, j)
	start := c.flushers < maxFlushers
	if start {
		c.flushers++
	}
	c.mu.Unlock()
	if start {
		go c.flush()
	}
	// A deadline is waited for by our own timer, and a context that has one need not
	// make a channel for it: that its request has gone is seen when the job is taken.
	until, timed := ctx.Deadline()
	hurried := timed && until.Before(j.deadline)
	if !hurried {
		until = j.deadline
	}
	var gone <-chan struct{}
	if !timed {
		gone = ctx.Done()
	}
	j.timer.Reset(until.Sub(now))
	select {
	case <-j.done:
		return c.conclude(j, verdicts)
	case <-j.timer.C:
	case <-gone:
		return c.giveUp(j, context.Cause(ctx), verdicts)
	}
	if !hurried && c.graceWait(ctx, j, gone) {
		return c.conclude(j, verdicts)
	}
	return c.giveUp(j, context.DeadlineExceeded, verdicts)
}

// job returns one for calls that are submitted now.
func (c *collector) job(ctx context.Context, calls []Call, now time.Time) *job {
	j, ok := c.jobs.Get().(*job)
	if !ok {
		j = &job{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		j.timer.Stop()
	}
	j.calls, j.ctx, j.span = calls, ctx, c.spans.of(ctx)
	j.verdicts = blank(j.verdicts, len(calls))
	j.deadline = now.Add(c.budget)
	j.state.Store(jobWaiting)
	return j
}

// conclude returns the result of a job that the flusher has finished, and recycles the job.
func (c *collector) conclude(j *job, verdicts []Verdict) error {
	j.timer.Stop()
	err := j.err
	swap(verdicts, j.verdicts)
	j.calls, j.ctx, j.span, j.err = nil, nil, nil, nil
	c.jobs.Put(j)
	return err
}

// blank returns n empty verdicts in the memory of verdicts.
func blank(verdicts []Verdict, n int) []Verdict {
	verdicts = slices.Grow(verdicts[:0], n)[:n]
	for i := range verdicts {
		verdicts[i] = Verdict{Limits: verdicts[i].Limits[:0]}
	}
	return verdicts
}

// swap exchanges verdicts with the slices that they hold, so that both sides can use
// them again.
func swap(a, b []Verdict) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

// graceWait gives a call that was sent a moment more: it ends with its own budget,
// which is about now. Waiting for its outcome, instead of leaving first, lets the
// breaker open before the caller's next request. It reports whether the outcome came.
func (c *collector) graceWait(ctx context.Context, j *job, gone <-chan struct{}) bool {
	if j.state.Load() != jobSent {
		return false
	}
	more := c.budget / 10
	if until, timed := ctx.Deadline(); timed {
		more = min(more, time.Until(until))
	}
	j.timer.Reset(more)
	select {
	case <-j.done:
		return true
	case <-j.timer.C:
	case <-gone:
	}
	return false
}

// giveUp takes a job out whose caller cannot wait any longer. If it was not sent
// it never will be, and nothing was charged; afterwards the outcome is unknown.
func (c *collector) giveUp(j *job, cause error, verdicts []Verdict) error {
	if j.state.CompareAndSwap(jobWaiting, jobWithdrawn) || j.state.Load() == jobWithdrawn { // by the flusher, just now
		return &StoreError{Reason: quota.ReasonRedisTimeout, Err: cause}
	}
	select {
	case <-j.done: // it came in this very moment
		swap(verdicts, j.verdicts)
		return j.err
	default:
		return &StoreError{Reason: quota.ReasonRedisTimeout, Ambiguous: true, Err: cause}
	}
}

// flush sends batches until nothing is queued.
func (c *collector) flush() {
	b, ok := c.batches.Get().(*batch)
	if !ok {
		b = &batch{}
	}
	for {
		runtime.Gosched() // callers that are about to submit may still come along
		if b.jobs = c.take(b.jobs[:0]); len(b.jobs) == 0 {
			c.batches.Put(b)
			return
		}
		deadline, n := time.Time{}, 0
		for _, j := range b.jobs {
			n += len(j.calls)
			if j.deadline.After(deadline) {
				deadline = j.deadline
			}
		}
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		c.carry(ctx, b, n)
		cancel()
		clear(b.jobs)
	}
}

// carry sends the n calls of some jobs together and gives each its outcome.
func (c *collector) carry(ctx context.Context, b *batch, n int) {
	ctx, span := c.spans.start(ctx, b.jobs, n)
	if span != nil {
		defer span.End()
	}
	if len(b.jobs) == 1 { // nothing to copy
		j := b.jobs[0]
		j.err = c.send(ctx, j.calls, j.verdicts)
		concluded(span, j.err)
		j.done <- struct{}{}
		return
	}
	b.calls, b.verdicts = b.calls[:0], blank(b.verdicts, n)
	for _, j := range b.jobs {
		b.calls = append(b.calls, j.calls...)
	}
	err := c.send(ctx, b.calls, b.verdicts)
	concluded(span, err)
	at := 0
	for _, j := range b.jobs {
		count := len(j.verdicts)
		swap(j.verdicts, b.verdicts[at:at+count])
		at += count
		j.err = err
		j.done <- struct{}{} // from here on it is the caller's
	}
	clear(b.calls)
}

// take claims queued jobs for one batch and appends them to jobs, leaving out the
// withdrawn; none ends the flusher. A job larger than maxBatch travels alone.
func (c *collector) take(jobs []*job) []*job {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls, taken := 0, 0
	for _, j := range c.queue {
		if len(jobs) > 0 && calls+len(j.calls) > maxBatch {
			break
		}
		taken++
		if j.claim() {
			jobs = append(jobs, j)
			calls += len(j.calls)
		}
	}
	rest := copy(c.queue, c.queue[taken:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	if len(jobs) == 0 {
		c.flushers--
	}
	return jobs
}

// claim reports whether a job is the flusher's to send: its caller still waits, and
// the request behind it has not been cancelled.
func (j *job) claim() bool {
	if gone := j.ctx.Err(); gone == nil {
		return j.state.CompareAndSwap(jobWaiting, jobSent)
	}
	if j.state.CompareAndSwap(jobWaiting, jobWithdrawn) {
		j.err = &StoreError{Reason: quota.ReasonRedisTimeout, Err: context.Cause(j.ctx)}
		j.done <- struct{}{}
	}
	return false
}
