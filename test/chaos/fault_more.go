//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regiond/regiond/test/faultproxy"
)

// repeat does something again and again from Inject to Heal, and something else then.
func repeat(name string, every time.Duration, do, end func() error) Fault {
	stop, done := make(chan struct{}), make(chan error, 1)
	return Fault{
		Name: name,
		Inject: func() error {
			go func() {
				tick := time.NewTicker(every)
				defer tick.Stop()
				var failed error
				for {
					failed = errors.Join(failed, do())
					select {
					case <-stop:
						done <- errors.Join(failed, end())
						return
					case <-tick.C:
					}
				}
			}()
			return nil
		},
		Heal: func() error {
			close(stop)
			return <-done
		},
	}
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

// ForgetScripts has a region's Redis forget its scripts again and again.
func (w *World) ForgetScripts(name string, every time.Duration) Fault {
	r := w.region(name)
	return repeat("scripts of the Redis of "+name+" forgotten", every,
		func() error { return r.store.ScriptFlush(context.Background()).Err() }, nothing)
}

// OccupyRedis keeps a region's Redis in a script that does not end by itself.
func (w *World) OccupyRedis(name string) Fault {
	r := w.region(name)
	done := make(chan struct{})
	return Fault{
		Name: "Redis of " + name + " busy with a script",
		Inject: func() error {
			go func() {
				defer close(done)
				_ = r.store.Eval(context.Background(), "while true do end", nil).Err() // killed
			}()
			return nil
		},
		Heal: func() error {
			// Redis takes the order only after five seconds of the script.
			_, err := w.Await(10*time.Second, "the script is killed", func() error {
				return r.store.ScriptKill(context.Background()).Err()
			})
			<-done
			return err
		},
	}
}

// OscillateRedis moves the clock of a region's Redis forward and back by d, again and again.
func (w *World) OscillateRedis(name string, d, every time.Duration) Fault {
	r, ahead := w.region(name), false
	step := func() {
		ahead = !ahead
		if ahead {
			r.clock.Step(d)
		} else {
			r.clock.Step(-d)
		}
	}
	return repeat(fmt.Sprintf("clock of the Redis of %s strobes by %v", name, d), every, func() error {
		step()
		return nil
	}, func() error {
		if ahead {
			step()
		}
		return nil
	})
}

// SlewRedis has the clock of a region's Redis gain that many ppm, or lose them if
// they are negative. Healed, it stays as far off as it has come. It needs Options.Clock.
func (w *World) SlewRedis(name string, perMillion int64) Fault {
	r := w.region(name)
	slew := func(rate int64) func() error {
		return func() error { r.clock.Slew(rate); return nil }
	}
	return Fault{
		Name:   fmt.Sprintf("clock of the Redis of %s slewed by %+d ppm", name, perMillion),
		Inject: slew(perMillion), Heal: slew(0),
	}
}

// GarbleRedis puts something else under all keys of some tenants of a region. Healed,
// they are gone.
func (w *World) GarbleRedis(name, tenants string) Fault {
	r := w.region(name)
	each := func(do func(ctx context.Context, key string) error) func() error {
		return func() error {
			ctx := context.Background()
			keys, err := r.store.Keys(ctx, "rl:{"+tenants+"}:*").Result()
			if err == nil && len(keys) == 0 {
				err = errors.New("there are none")
			}
			for _, key := range keys {
				err = errors.Join(err, do(ctx, key))
			}
			return err
		}
	}
	return Fault{
		Name:   "keys of " + tenants + " in the Redis of " + name + " garbled",
		Inject: each(func(ctx context.Context, key string) error { return r.store.Set(ctx, key, "not ours", 0).Err() }),
		Heal:   each(func(ctx context.Context, key string) error { return r.store.Del(ctx, key).Err() }),
	}
}

// DenyFiles leaves a region's regiond no file to open: open ones go on, no new connection
// is let in.
func (w *World) DenyFiles(name string) Fault {
	r := w.region(name)
	var before unix.Rlimit
	return Fault{
		Name: "regiond of " + name + " without free file descriptors",
		Inject: func() error {
			pid := r.regiond.cmd.Process.Pid
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
				return err
			}
			return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: before.Max}, nil)
		},
		Heal: func() error { return unix.Prlimit(r.regiond.cmd.Process.Pid, unix.RLIMIT_NOFILE, &before, nil) },
	}
}

// Restart stops a region's regiond with SIGTERM and starts it again, as a rollout does.
func (w *World) Restart(name string) Fault {
	r := w.region(name)
	return Fault{
		Name: "regiond of " + name + " stopped and started again",
		Inject: func() error {
			if err := r.regiond.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				return err
			}
			<-r.regiond.exited
			return nil
		},
		Heal: r.regiond.start,
	}
}

// Nemesis does one fault after the other, chosen by a seed, for as long as it is left.
func (w *World) Nemesis(seed uint64, faults ...func() Fault) Fault {
	random := rand.New(rand.NewPCG(seed, 3))
	stop, done := make(chan struct{}), make(chan error, 1)
	rest := func(most time.Duration) (goOn bool) {
		timer := time.NewTimer(time.Duration(random.Int64N(int64(most))))
		defer timer.Stop()
		select {
		case <-stop:
			return false
		case <-timer.C:
			return true
		}
	}
	return Fault{
		Name: fmt.Sprintf("nemesis, seed %d", seed),
		Inject: func() error {
			go func() {
				var failed error
				for goOn := true; goOn; {
					f := faults[random.IntN(len(faults))]()
					w.History.Note("inject: " + f.Name)
					failed = errors.Join(failed, f.Inject())
					goOn = rest(5 * time.Second)
					w.History.Note("heal: " + f.Name)
					failed = errors.Join(failed, f.Heal())
					goOn = goOn && rest(5*time.Second)
				}
				done <- failed
			}()
			return nil
		},
		Heal: func() error {
			close(stop)
			return <-done
		},
	}
}
