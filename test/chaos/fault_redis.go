//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/faultproxy"
)

// SlowRedis delays every reply of a region's Redis. It needs Options.Proxy.
func (w *World) SlowRedis(name string, d time.Duration) Fault {
	r := w.region(name)
	return set(fmt.Sprintf("Redis of %s slower by %v", name, d), func(d time.Duration) error { r.proxy.Delay(d); return nil }, d, 0)
}

// SilenceRedis has existing connections to a region's Redis fall silent for ever, see faultproxy.Connections.
// New ones work. It needs Options.Proxy.
func (w *World) SilenceRedis(name string, which faultproxy.Connections) Fault {
	return Fault{Name: "connections to the Redis of " + name + " silent", Inject: func() error { w.region(name).proxy.Silence(which); return nil }, Heal: nothing}
}

// StutterRedis stops a region's Redis for d, again and again.
func (w *World) StutterRedis(name string, d, every time.Duration) Fault {
	redis := w.region(name).redis
	return repeat(fmt.Sprintf("Redis of %s stopped for %v every %v", name, d, every), every, func() error {
		err := redis.freeze()
		time.Sleep(d)
		return errors.Join(err, redis.thaw())
	}, nothing)
}

// FlushRedis deletes all data of a region's Redis.
func (w *World) FlushRedis(name string) Fault {
	r := w.region(name)
	return Fault{Name: "Redis of " + name + " flushed", Inject: func() error { return r.store.FlushAll(context.Background()).Err() }, Heal: nothing}
}

// FillRedis leaves a region's Redis no memory: it answers, and refuses to write.
func (w *World) FillRedis(name string) Fault {
	r := w.region(name)
	return set("Redis of "+name+" out of memory", func(most string) error {
		return r.store.ConfigSet(context.Background(), "maxmemory", most).Err()
	}, "1", "0")
}

// StepRedis moves the wall clock of a region's Redis, again and again after a time. It needs Options.Clock. Healing
// leaves it where it is: a clock that is set right is another step.
func (w *World) StepRedis(name string, every time.Duration, steps ...time.Duration) Fault {
	r := w.region(name)
	return background(fmt.Sprintf("clock of the Redis of %s stepped by %v", name, steps), func(ctx context.Context) error {
		for _, d := range steps {
			from := w.History.Now()
			r.clock.Step(d)
			at := judge.Span{From: from, To: w.History.Note(fmt.Sprintf("stepped by %v", d))}
			w.stepped = append(w.stepped, judge.Loss{Region: name, Span: at})
			pause(ctx, every)
		}
		return nil
	})
}

// DriftRedis has the wall clock of a region's Redis run too fast by so many millionths, or too slow. It needs Options.Clock.
func (w *World) DriftRedis(name string, ppm int64) Fault {
	r := w.region(name)
	return set(fmt.Sprintf("clock of the Redis of %s %d ppm fast", name, ppm), func(ppm int64) error { r.clock.Drift(ppm); return nil }, ppm, 0)
}

// BreakReplies strikes one reply of a region's Redis after the other: swallowed, dropped
// with its connection, cut in the middle, and out of step. It needs Options.Proxy.
func (w *World) BreakReplies(name string, every time.Duration) Fault {
	r, n := w.region(name), 0
	kinds := []faultproxy.Kind{faultproxy.Swallow, faultproxy.Drop, faultproxy.Cut, faultproxy.Stray}
	return repeat("replies of the Redis of "+name+" lost, cut and shifted", every, func() error {
		r.proxy.Arm(faultproxy.Fault{Kind: kinds[n%len(kinds)], Reply: 1, Scripts: true})
		n++
		return nil
	}, func() error {
		r.proxy.Disarm()
		return nil
	})
}
