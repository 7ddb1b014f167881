//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/regiond/regiond/test/chaos/wan"
)

// Fault is one thing that goes wrong. Heal undoes what Inject did and may be called
// once, whether or not Inject succeeded.
type Fault struct {
	Name   string
	Inject func() error
	Heal   func() error
}

// nothing heals by itself.
func nothing() error { return nil }

// region is one by its name.
func (w *World) region(name string) *Region {
	for _, r := range w.Regions {
		if r.Name == name {
			return r
		}
	}
	w.t.Fatalf("there is no region %q", name)
	return nil
}

// KillRedis ends a region's Redis; healed, it is back, empty.
func (w *World) KillRedis(name string) Fault {
	r := w.region(name)
	return Fault{
		Name:   "Redis of " + name + " killed",
		Inject: func() error { r.redis.kill(); return nil },
		Heal:   func() error { return r.redis.start() },
	}
}

// FreezeRedis stops a region's Redis: connections stand and nothing is answered.
func (w *World) FreezeRedis(name string) Fault {
	r := w.region(name)
	return Fault{Name: "Redis of " + name + " frozen", Inject: r.redis.freeze, Heal: r.redis.thaw}
}

// SlowRedis delays every reply of a region's Redis. It needs Options.Proxy.
func (w *World) SlowRedis(name string, d time.Duration) Fault {
	r := w.region(name)
	delay := func(d time.Duration) func() error {
		return func() error { r.proxy.Delay(d); return nil }
	}
	return Fault{Name: fmt.Sprintf("Redis of %s slower by %v", name, d), Inject: delay(d), Heal: delay(0)}
}

// FlushRedis has a region's Redis forget everything.
func (w *World) FlushRedis(name string) Fault {
	r := w.region(name)
	return Fault{
		Name:   "Redis of " + name + " flushed",
		Inject: func() error { return r.store.FlushAll(context.Background()).Err() },
		Heal:   nothing,
	}
}

// FillRedis leaves a region's Redis no memory: it answers, and refuses to write.
func (w *World) FillRedis(name string) Fault {
	return w.configureRedis("Redis of "+name+" out of memory", name, "maxmemory", "1", "0")
}

func (w *World) configureRedis(what, name, key, bad, good string) Fault {
	r := w.region(name)
	set := func(value string) func() error {
		return func() error { return r.store.ConfigSet(context.Background(), key, value).Err() }
	}
	return Fault{Name: what, Inject: set(bad), Heal: set(good)}
}

// StepRedis moves the wall clock of a region's Redis. It needs Options.Clock. Healing
// leaves it where it is: a clock that is set right is another step.
func (w *World) StepRedis(name string, d time.Duration) Fault {
	r := w.region(name)
	return Fault{
		Name:   fmt.Sprintf("clock of the Redis of %s stepped by %v", name, d),
		Inject: func() error { r.clock.Step(d); return nil },
		Heal:   nothing,
	}
}

// KillNATS ends the NATS servers of regions; healed, they are back.
func (w *World) KillNATS(names ...string) Fault {
	return w.nats("killed", func(p *process) error { p.kill(); return nil }, (*process).start, names)
}

// FreezeNATS stops the NATS servers of regions.
func (w *World) FreezeNATS(names ...string) Fault {
	return w.nats("frozen", (*process).freeze, (*process).thaw, names)
}

func (w *World) nats(what string, inject, heal func(*process) error, names []string) Fault {
	all := func(do func(*process) error) func() error {
		return func() error {
			var errs []error
			for _, name := range names {
				errs = append(errs, do(w.region(name).nats))
			}
			return errors.Join(errs...)
		}
	}
	return Fault{Name: fmt.Sprintf("NATS of %v %s", names, what), Inject: all(inject), Heal: all(heal)}
}

// FreezeRegion stops all that a region runs.
func (w *World) FreezeRegion(name string) Fault {
	r := w.region(name)
	return Fault{
		Name:   "region " + name + " frozen",
		Inject: func() error { return r.each((*process).freeze) },
		Heal:   func() error { return r.each((*process).thaw) },
	}
}

// CrashRegion kills a region's regiond and NATS. It comes back over its Redis, and
// gossips from an address that no file names.
func (w *World) CrashRegion(name string) Fault {
	r := w.region(name)
	return Fault{
		Name: "region " + name + " crashed",
		Inject: func() error {
			r.regiond.kill()
			r.nats.kill()
			return nil
		},
		Heal: func() error {
			r.moved = true
			return errors.Join(r.nats.start(), w.launchRegiond(r))
		},
	}
}

// RestartAll kills every regiond and NATS and starts them again together.
func (w *World) RestartAll() Fault {
	all := func(do func(r *Region) error) func() error {
		return func() error {
			var errs []error
			for _, r := range w.Regions {
				errs = append(errs, do(r))
			}
			return errors.Join(errs...)
		}
	}
	return Fault{
		Name:   "all regions restarted",
		Inject: all(func(r *Region) error { r.regiond.kill(); r.nats.kill(); return nil }),
		Heal:   all(func(r *Region) error { return errors.Join(r.nats.start(), r.regiond.start()) }),
	}
}

// Partition cuts all lines between groups of regions.
func (w *World) Partition(groups ...[]string) Fault {
	group := func(i int) int {
		for g, names := range groups {
			for _, name := range names {
				if w.Regions[i].Name == name {
					return g
				}
			}
		}
		return -1
	}
	return w.lines(fmt.Sprintf("partition %v", groups), func(from, to int) bool { return group(from) != group(to) }, wan.Link.Cut)
}

// CutBetween cuts the lines between two regions that a third still sees: a bridge.
func (w *World) CutBetween(a, b string) Fault {
	return w.lines(fmt.Sprintf("no line between %s and %s", a, b), func(from, to int) bool {
		return w.joins(from, to, a, b) || w.joins(from, to, b, a)
	}, wan.Link.Cut)
}

// CutOneWay swallows what one region sends to another, and nothing that comes back.
func (w *World) CutOneWay(from, to string) Fault {
	return w.lines(fmt.Sprintf("nothing gets from %s to %s", from, to), func(i, k int) bool { return w.joins(i, k, from, to) }, wan.Link.Cut)
}

// LoseUDP loses a share of UDP everywhere; TCP is untouched.
func (w *World) LoseUDP(share float64) Fault {
	return w.lines(fmt.Sprintf("%.0f %% of UDP lost", 100*share), func(int, int) bool { return true }, func(l wan.Link) wan.Link {
		l.LossUDP = share
		return l
	})
}

// Rough loses, repeats and reorders packets on all lines.
func (w *World) Rough(loss, duplicate, reorder float64) Fault {
	return w.lines(fmt.Sprintf("%.0f %% lost, %.0f %% repeated, %.0f %% reordered", 100*loss, 100*duplicate, 100*reorder),
		func(int, int) bool { return true }, func(l wan.Link) wan.Link {
			l.Loss, l.Duplicate, l.Reorder = loss, duplicate, reorder
			return l
		})
}

func (w *World) joins(from, to int, a, b string) bool {
	return w.Regions[from].Name == a && w.Regions[to].Name == b
}

// lines changes some lines, and makes them as they were.
func (w *World) lines(what string, which func(from, to int) bool, change func(wan.Link) wan.Link) Fault {
	return Fault{
		Name: what,
		Inject: func() error {
			w.Lines(func(from, to int, l wan.Link) wan.Link {
				if which(from, to) {
					return change(l)
				}
				return l
			})
			return nil
		},
		Heal: func() error {
			w.Lines(func(from, to int, l wan.Link) wan.Link {
				if which(from, to) {
					return w.options.Line
				}
				return l
			})
			return nil
		},
	}
}

// Flap injects a fault and heals it, alternately, until it is healed.
func (w *World) Flap(f Fault, every time.Duration) Fault {
	down := false
	return repeat(fmt.Sprintf("%s, on and off every %v", f.Name, every), every, func() error {
		if down = !down; down {
			return f.Inject()
		}
		return f.Heal()
	}, f.Heal)
}

// Both is two faults at once.
func Both(a, b Fault) Fault {
	return Fault{
		Name:   a.Name + " and " + b.Name,
		Inject: func() error { return errors.Join(a.Inject(), b.Inject()) },
		Heal:   func() error { return errors.Join(a.Heal(), b.Heal()) },
	}
}
