package limiter

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
)

// collector lets checks that wait at the same time travel together. There is no
// timer: while a flusher's call is under way the next ones gather behind it, so
// an idle service sends at once and a busy one in batches.
//
//	caller ─ submit ─▶ queue ─ take ─▶ flusher ─ send ─▶ store
//	   ▲                                  │
//	   └───────────── done ◀──────────────┘
//
// A flusher is a goroutine that lives while there is something queued; there
// are at most maxFlushers.
type collector struct {
	budget time.Duration // from submit to answer, the queue included
	spans  *scriptSpans  // nil: no call is traced
	send   func(ctx context.Context, calls []Call, verdicts []Verdict) error

	mu       sync.Mutex
	queue    []*job
	flushers int
}

const (
	// maxBatch is how many calls travel in one script call. At 64 a decision
	// costs Redis less than an empty script call of its own; more only makes the
	// first wait for the last.
	maxBatch = 64
	// maxFlushers bounds the calls under way to Redis. A second one keeps Redis
	// busy while we decode the first; a third brought nothing.
	maxFlushers = 2
)

// job is what one caller submitted. state decides between the flusher that
// wants to send it and the caller whose time ran out.
type job struct {
	calls    []Call
	verdicts []Verdict
	deadline time.Time // of the whole budget: a hurried caller must not hurry those it travels with
	state    atomic.Int32
	span     trace.Span // of the request, if that is sampled; else nil
	err      error
	done     chan struct{} // closed by the flusher when verdicts and err are set
}

const (
	jobWaiting   int32 = iota
	jobSent            // by a flusher; the outcome is in the store's hands
	jobWithdrawn       // by its caller; it will not be sent
)

// submit queues the calls and waits for their verdicts until the budget or ctx
// ends; see hearOut for the tenth of a budget beyond it. The calls must not be
// changed afterwards: they may still be read.
func (c *collector) submit(ctx context.Context, calls []Call, verdicts []Verdict) error {
	j := &job{
		calls: calls, verdicts: make([]Verdict, len(calls)),
		deadline: time.Now().Add(c.budget), done: make(chan struct{}),
		span: c.spans.of(ctx),
	}
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
	timer := time.NewTimer(time.Until(j.deadline))
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
		c.hearOut(ctx, j, timer)
		return c.giveUp(j, context.DeadlineExceeded, verdicts)
	case <-ctx.Done():
		return c.giveUp(j, context.Cause(ctx), verdicts)
	}
	copy(verdicts, j.verdicts)
	return j.err
}

// hearOut gives a call that was sent a moment more: it ends with its own budget,
// which is about now. To hear how it ended, instead of leaving first, lets the
// breaker open before the caller's next request comes.
func (c *collector) hearOut(ctx context.Context, j *job, timer *time.Timer) {
	if j.state.Load() != jobSent {
		return
	}
	timer.Reset(c.budget / 10)
	select {
	case <-j.done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// giveUp takes a job out whose caller cannot wait any longer. If it was not sent
// it never will be, and nothing was charged; afterwards nobody can know.
func (c *collector) giveUp(j *job, cause error, verdicts []Verdict) error {
	if j.state.CompareAndSwap(jobWaiting, jobWithdrawn) {
		return &StoreError{Reason: quota.ReasonRedisTimeout, Err: cause}
	}
	select {
	case <-j.done: // it came in this very moment
		copy(verdicts, j.verdicts)
		return j.err
	default:
		return &StoreError{Reason: quota.ReasonRedisTimeout, Ambiguous: true, Err: cause}
	}
}

// flush sends batches until nothing is queued.
func (c *collector) flush() {
	for {
		runtime.Gosched() // callers that are about to submit may still come along
		jobs := c.take()
		if jobs == nil {
			return
		}
		deadline, n := time.Time{}, 0
		for _, j := range jobs {
			n += len(j.calls)
			if j.deadline.After(deadline) {
				deadline = j.deadline
			}
		}
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		c.carry(ctx, jobs, n)
		cancel()
	}
}

// carry sends the n calls of some jobs together and tells each how it went.
func (c *collector) carry(ctx context.Context, jobs []*job, n int) {
	ctx, span := c.spans.start(ctx, jobs, n)
	if span != nil {
		defer span.End()
	}
	if len(jobs) == 1 { // an idle service copies nothing
		j := jobs[0]
		j.err = c.send(ctx, j.calls, j.verdicts)
		concluded(span, j.err)
		close(j.done)
		return
	}
	calls, verdicts := make([]Call, 0, n), make([]Verdict, n)
	for _, j := range jobs {
		calls = append(calls, j.calls...)
	}
	err := c.send(ctx, calls, verdicts)
	concluded(span, err)
	at := 0
	for _, j := range jobs {
		copy(j.verdicts, verdicts[at:])
		at += len(j.calls)
		j.err = err
		close(j.done)
	}
}

// take claims queued jobs for one batch, leaving out the withdrawn; nil ends the
// flusher. A job larger than maxBatch travels alone.
func (c *collector) take() []*job {
	c.mu.Lock()
	defer c.mu.Unlock()
	var jobs []*job
	calls, taken := 0, 0
	for _, j := range c.queue {
		if len(jobs) > 0 && calls+len(j.calls) > maxBatch {
			break
		}
		taken++
		if j.state.CompareAndSwap(jobWaiting, jobSent) {
			jobs = append(jobs, j)
			calls += len(j.calls)
		}
	}
	rest := copy(c.queue, c.queue[taken:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	if jobs == nil {
		c.flushers--
	}
	return jobs
}
