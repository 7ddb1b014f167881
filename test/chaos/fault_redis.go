//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regiond/regiond/test/faultproxy"
)

// SlowRedis delays every reply of a region's Redis. It needs Options.Proxy.
func (w *World) SlowRedis(name string, d time.Duration) Fault {
	r := w.region(name)
	return set(fmt.Sprintf("Redis of %s slower by %v", name, d), func(d time.Duration) error { r.proxy.Delay(d); return nil }, d, 0)
}

// SilenceRedis has existing connections to a region's Redis fall silent for ever. New ones
// work. It needs Options.Proxy.
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

// StepRedis moves the wall clock of a region's Redis. It needs Options.Clock. Healing
// leaves it where it is: a clock that is set right is another step.
func (w *World) StepRedis(name string, d time.Duration) Fault {
	r := w.region(name)
	return Fault{Name: fmt.Sprintf("clock of the Redis of %s stepped by %v", name, d), Inject: func() error { r.clock.Step(d); return nil }, Heal: nothing}
}

// OscillateRedis moves the clock of a region's Redis forward and back by d, again and again.
func (w *World) OscillateRedis(name string, d, every time.Duration) Fault {
	return w.Flap(set(fmt.Sprintf("clock of the Redis of %s oscillates by %v", name, d), func(d time.Duration) error {
		w.region(name).clock.Step(d)
		return nil
	}, d, -d), every)
}

// SlewRedis has the clock of a region's Redis gain that many ppm, or lose them if
// they are negative. Healed, it keeps its offset. It needs Options.Clock.
func (w *World) SlewRedis(name string, perMillion int64) Fault {
	r := w.region(name)
	return set(fmt.Sprintf("clock of the Redis of %s slewed by %+d ppm", name, perMillion),
		func(rate int64) error { r.clock.Slew(rate); return nil }, perMillion, 0)
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
	return background("Redis of "+name+" busy with a script", func(ctx context.Context) error {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = r.store.Eval(context.Background(), "while true do end", nil).Err() // killed
		}()
		<-ctx.Done()
		// Redis accepts SCRIPT KILL only after five seconds of the script.
		_, err := w.Await(10*time.Second, "the script is killed", func() error {
			return r.store.ScriptKill(context.Background()).Err()
		})
		<-done
		return err
	})
}

// GarbleRedis overwrites all keys of some tenants of a region with foreign data. Healed,
// they are deleted.
func (w *World) GarbleRedis(name, tenants string) Fault {
	r, ctx := w.region(name), context.Background()
	each := func(do func(key string) error) error {
		keys, err := r.store.Keys(ctx, "rl:{"+tenants+"}:*").Result()
		if err == nil && len(keys) == 0 {
			err = errors.New("there are none")
		}
		for _, key := range keys {
			err = errors.Join(err, do(key))
		}
		return err
	}
	return set("keys of "+tenants+" in the Redis of "+name+" garbled", each,
		func(key string) error { return r.store.Set(ctx, key, "not ours", 0).Err() },
		func(key string) error { return r.store.Del(ctx, key).Err() })
}

// diskBytes is the disk of a Redis with Options.Disk.
const diskBytes = 8 << 20

// FillDisk fills the disk that a region's Redis logs to. It needs Options.Disk.
func (w *World) FillDisk(name string) Fault {
	r := w.region(name)
	file := filepath.Join(w.disk(r), "filler")
	return Fault{
		Name: "disk of the Redis of " + name + " full",
		Inject: func() error {
			return r.ns.Do(func() error {
				if err := os.WriteFile(file, make([]byte, diskBytes), 0o600); !errors.Is(err, unix.ENOSPC) {
					return fmt.Errorf("fill the disk: %w", err)
				}
				return nil
			})
		},
		Heal: func() error { return r.ns.Do(func() error { return os.Remove(file) }) },
	}
}

// StallDisk has each fsync of a region's Redis take a time. It needs Options.Sync, since
// Redis waits for it before each answer only then.
func (w *World) StallDisk(name string, d time.Duration) Fault {
	r := w.region(name)
	return set(fmt.Sprintf("each fsync of the Redis of %s takes %v", name, d), func(d time.Duration) error { r.syncs.last(d, 0); return nil }, d, 0)
}

// BreakDisk has each fsync of a region's Redis fail, by which it ends. Healed, it is
// back with what it had written. It needs Options.Sync.
func (w *World) BreakDisk(name string) Fault {
	r := w.region(name)
	return Fault{
		Name:   "disk of the Redis of " + name + " broken",
		Inject: func() error { r.syncs.last(0, unix.EIO); return nil },
		Heal: func() error {
			_, err := w.Await(5*time.Second, "Redis gives up", func() error {
				select {
				case <-r.redis.exited:
					return nil
				default:
					return errors.New("it goes on")
				}
			})
			r.redis.kill() // does nothing to one that has ended
			r.syncs.last(0, 0)
			return errors.Join(err, r.redis.start())
		},
	}
}

// TearLog kills a region's Redis and cuts the end of its log off, as a power cut does
// with what was not synced. Healed, it is back with the rest. It needs Options.Disk.
func (w *World) TearLog(name string, bytes int64) Fault {
	r := w.region(name)
	return Fault{
		Name: fmt.Sprintf("Redis of %s killed, %d bytes of its log lost", name, bytes),
		Inject: func() error {
			r.redis.kill()
			return r.ns.Do(func() error {
				logs, err := filepath.Glob(filepath.Join(w.disk(r), "appendonlydir", "*.incr.aof"))
				if err != nil || len(logs) != 1 {
					return fmt.Errorf("the log of Redis: %v, %w", logs, err)
				}
				state, err := os.Stat(logs[0])
				if err != nil || state.Size() < 10*bytes {
					return fmt.Errorf("the log of Redis is too short to lose %d bytes: %w", bytes, err)
				}
				return os.Truncate(logs[0], state.Size()-bytes)
			})
		},
		Heal: func() error { return r.redis.start() },
	}
}

// disk is where a region's Redis keeps its log.
func (w *World) disk(r *Region) string { return filepath.Join(w.dir, r.Name+"-disk") }

// mountDisk makes a small disk that only the region's processes see.
func (w *World) mountDisk(r *Region) error {
	if err := os.Mkdir(w.disk(r), 0o700); err != nil {
		return err
	}
	return r.ns.Do(func() error {
		return unix.Mount("tmpfs", w.disk(r), "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes))
	})
}
