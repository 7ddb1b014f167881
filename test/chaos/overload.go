//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	// Enough callers that Redis never waits for one, for long enough to know its speed. It is measured when they have warmed
	// up, by the fastest part of a second: in a slower one the machine held Redis up.
	saturatingCallers = 8
	warmUp            = 500 * time.Millisecond
	partOfSecond      = 250 * time.Millisecond
	saturatingFor     = warmUp + time.Second
)

// Overload is a region's Redis throttled and asked for more than it can do.
type Overload struct {
	// Capacity is how many checks a second it decided at most when asked in a closed loop.
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
	records := w.History.Records()
	decided := map[time.Duration]int{}
	for i := range records {
		if r := &records[i]; r.Batch && r.Return > saturated+warmUp && (r.Answer.Basis == "exact" || r.Answer.Basis == "estimate") {
			decided[(r.Return-saturated-warmUp)/partOfSecond]++
		}
	}
	o.Capacity = slices.Max(append(slices.Collect(maps.Values(decided)), 0)) * int(time.Second/partOfSecond)
	o.Full = w.History.Note(fmt.Sprintf("it decides %d checks a second, %d times as many are sent", o.Capacity, crowdTimes))
	ctx, o.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(o.done)
		load.Crowd(ctx, to, float64(crowdTimes*o.Capacity))
	}()
	return o, nil
}

// End ends it and returns when that was.
func (o *Overload) End() (time.Duration, error) {
	o.cancel()
	<-o.done
	o.client.HangUp()
	o.r.redis.throttle.Stop()
	o.r.redis.throttle = nil
	var err error
	for _, extra := range o.client.Extra() {
		err = errors.Join(err, errors.New(extra))
	}
	return o.w.History.Note("the overload ends"), err
}
