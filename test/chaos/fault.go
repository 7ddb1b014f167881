//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Fault is one thing that goes wrong. Heal undoes what Inject did and may be called
// once, whether or not Inject succeeded.
type Fault struct {
	Name   string
	Inject func() error
	Heal   func() error
	// Achieved is what Heal finds that a hostile peer achieved; nil for other faults.
	Achieved *Achieved
}

func nothing() error { return nil }

// set is a fault that sets something to a bad value, and to a good one when healed.
func set[T any](name string, to func(T) error, bad, good T) Fault {
	return Fault{Name: name, Inject: func() error { return to(bad) }, Heal: func() error { return to(good) }}
}

// Both is two faults at once, healed in reverse order.
func Both(a, b Fault) Fault {
	return Fault{
		Name:   a.Name + " and " + b.Name,
		Inject: func() error { return errors.Join(a.Inject(), b.Inject()) },
		Heal:   func() error { return errors.Join(b.Heal(), a.Heal()) },
	}
}

// background runs a function from Inject until its context is cancelled by Heal, which
// returns its error.
func background(name string, run func(ctx context.Context) error) Fault {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	return Fault{
		Name:   name,
		Inject: func() error { go func() { done <- run(ctx) }(); return nil },
		Heal:   func() error { cancel(); return <-done },
	}
}

// repeat does something again and again from Inject to Heal, and something else then.
func repeat(name string, every time.Duration, do, end func() error) Fault {
	return background(name, func(ctx context.Context) error {
		tick := time.NewTicker(every)
		defer tick.Stop()
		var failed error
		for {
			failed = errors.Join(failed, do())
			select {
			case <-ctx.Done():
				return errors.Join(failed, end())
			case <-tick.C:
			}
		}
	})
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
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
	}, func() error {
		if down {
			return f.Heal()
		}
		return nil
	})
}

// Nemesis injects one fault after the other, chosen by a seed, until it is healed.
func (w *World) Nemesis(seed uint64, faults ...func() Fault) Fault {
	random := rand.New(rand.NewPCG(seed, 3))
	return background(fmt.Sprintf("nemesis, seed %d", seed), func(ctx context.Context) (failed error) {
		rest := func() { pause(ctx, time.Duration(random.Int64N(int64(5*time.Second)))) }
		for {
			f := faults[random.IntN(len(faults))]()
			w.History.Note("inject: " + f.Name)
			failed = errors.Join(failed, f.Inject())
			rest()
			w.History.Note("heal: " + f.Name)
			failed = errors.Join(failed, f.Heal())
			if rest(); ctx.Err() != nil {
				return failed
			}
		}
	})
}

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

// Programs that Kill and Freeze affect.
const (
	Redis   = "Redis"
	NATS    = "NATS"
	Regiond = "regiond"
	All     = "all processes"
)

// Kill kills a program in regions. Healed, it starts again with the same arguments.
func (w *World) Kill(program string, regions ...string) Fault {
	return w.programs("killed", program, regions, func(p *process) error { p.kill(); return nil }, (*process).start)
}

// Brief is a fault that is over after a time, while the scenario goes on.
func Brief(f Fault, d time.Duration) Fault {
	return Fault{
		Name: fmt.Sprintf("%s for %v", f.Name, d),
		Inject: func() error {
			err := f.Inject()
			time.Sleep(d)
			return errors.Join(err, f.Heal())
		},
		Heal: nothing,
	}
}

// Freeze stops a program in regions: connections stay open and nothing is answered.
func (w *World) Freeze(program string, regions ...string) Fault {
	return w.programs("frozen", program, regions, (*process).freeze, (*process).thaw)
}

func (w *World) programs(what, program string, regions []string, inject, heal func(*process) error) Fault {
	each := func(do func(*process) error) error {
		var errs []error
		for _, name := range regions {
			r := w.region(name)
			for _, p := range map[string][]*process{Redis: {r.redis}, NATS: {r.nats}, Regiond: {r.regiond}, All: r.processes()}[program] {
				errs = append(errs, do(p))
			}
		}
		return errors.Join(errs...)
	}
	return set(fmt.Sprintf("%s of %v %s", program, regions, what), each, inject, heal)
}
