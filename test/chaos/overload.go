//go:build linux

package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/regiond/regiond/test/chaos/traffic"
	"github.com/regiond/regiond/test/redisserver"
)

const (
	// An overloaded Redis has a tenth of a processor, so that few requests are too many and
	// the machine keeps up. It is paused for the rest of each period.
	throttleRun    = time.Millisecond
	throttlePeriod = 10 * time.Millisecond
	throttlePause  = throttlePeriod - throttleRun
	// overloadTimes is how many times more it is asked for than it can do, and crowdTimes
	// what is sent for that: how fast it is varies.
	overloadTimes = 5
	crowdTimes    = 7
	// The usual requests meet the slow Redis first. When it becomes ten times slower under full load, the checks under way
	// take longer than regiond waits for a dead Redis.
	usualFor = 500 * time.Millisecond
	// Enough callers that Redis never waits for one, for long enough to know its speed; it is
	// measured when they have warmed up.
	saturatingCallers = 8
	warmUp            = 500 * time.Millisecond
	saturatingFor     = warmUp + time.Second
)

// Overload is a region's Redis throttled and asked for more than it can do.
type Overload struct {
	// Capacity is how many checks a second it decided when asked in a closed loop.
	Capacity int
	// Began is when it was throttled, and Full when the open loop began.
	Began, Full time.Duration

	w      *World
	r      *Region
	client *traffic.Client
	cancel context.CancelFunc
	done   chan struct{} // closed when all batches are answered
}

// Overload throttles a region's Redis, measures what it can do, and sends crowdTimes as
// much until the overload ends.
func (w *World) Overload(name string) (*Overload, error) {
	r := w.region(name)
	o := &Overload{w: w, r: r, client: traffic.NewClient(httpAddr, r.ns.Dial), done: make(chan struct{})}
	r.redis.throttle = redisserver.NewThrottle(w.t, throttleRun, throttlePeriod)
	if err := r.redis.throttled(); err != nil {
		return nil, err
	}
	o.Began = w.History.Note("the Redis of " + name + " is throttled")
	time.Sleep(usualFor)
	load, saturated := traffic.Load{Seed: w.options.Seed, History: w.History}, w.History.Now()
	to := &traffic.Target{Region: name, Regiond: o.client}
	ctx, cancel := context.WithTimeout(context.Background(), saturatingFor)
	load.Saturate(ctx, to, saturatingCallers)
	cancel()
	o.Capacity = o.decided(saturated + warmUp)
	o.Full = w.History.Note(fmt.Sprintf("it decides %d checks a second, %d times as many are sent", o.Capacity, crowdTimes))
	ctx, o.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(o.done)
		o.crowd(ctx, load, to)
	}()
	return o, nil
}

// decided is how many checks of batches were decided since then, in a second.
func (o *Overload) decided(since time.Duration) int {
	n := 0
	records := o.w.History.Records()
	for i := range records {
		if r := &records[i]; r.Batch && r.Call > since && (r.Answer.Basis == "exact" || r.Answer.Basis == "estimate") {
			n++
		}
	}
	return int(time.Duration(n) * time.Second / (o.w.History.Now() - since))
}

// crowd sends crowdTimes as much as Redis can do, and more once it decides more than it did while it was measured: the machine
// may have held it up then.
func (o *Overload) crowd(ctx context.Context, load traffic.Load, to *traffic.Target) {
	var all sync.WaitGroup
	defer all.Wait()
	sent := 0
	for can := o.Capacity; ; can = o.decided(o.w.History.Now() - time.Second) {
		if more := crowdTimes*can - sent; more > 0 {
			sent += more
			all.Go(func() { load.Crowd(ctx, to, float64(more)) })
		}
		if pause(ctx, time.Second); ctx.Err() != nil {
			return
		}
	}
}

// End ends it and returns when that was.
func (o *Overload) End() time.Duration {
	o.cancel()
	<-o.done
	o.client.HangUp()
	o.r.redis.throttle.Stop()
	o.r.redis.throttle = nil
	return o.w.History.Note("the overload ends")
}
