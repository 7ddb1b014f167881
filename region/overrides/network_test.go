package overrides

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/test/meshtest"
)

// world is three regions of two processes each, which run, on a network that loses, repeats, delays and reorders. The clocks of
// the regions differ by seconds.
type world struct {
	*testing.T
	dice   *rand.Rand
	net    *meshtest.Network
	stores [3]*regionStore
	away   [3]atomic.Bool // stores
	all    [6]*running
	ahead  atomic.Int64 // by which all clocks have gone on, µs

	largest map[string]*quota.Override
}

// running is a process of it.
type running struct {
	*Overlay
	place int
	bus   *meshtest.Bus
	stop  func()
}

// resets is sync.SubjectReset, on which overrides travel.
const resets = "rl.v1.reset."

func name(place int) string { return fmt.Sprint("r", place) }

// timeUS is the clock of a region's store.
func (w *world) timeUS(place int) int64 {
	return time.Now().UnixMicro() + int64(place-1)*3_000_000 + w.ahead.Load()
}

// start has a process of a region begin, in place of the one that was there.
func (w *world) start(i int) {
	p := &running{place: i % 3, bus: w.net.Join(name(i % 3))}
	if old := w.all[i]; old != nil {
		old.stop()
	}
	top := &region.Topology{Policies: []quota.Policy{{Name: "p", Limits: []quota.Limit{{Name: "l", Units: 1000, Window: time.Minute}}}}, Tenants: region.Tenants{Default: &quota.Tenant{Policy: "p"}}}
	var err error
	if p.Overlay, err = New(Options{
		Region: name(p.place), TimeUS: func() int64 { return w.timeUS(p.place) }, Now: time.Now,
		Topology: func() *region.Topology { return top }, Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		w.Fatal(err)
	}
	p.keeper = &faulty{w.stores[p.place], func(string) error {
		if w.away[p.place].Load() {
			return context.DeadlineExceeded
		}
		return nil
	}}
	p.loaded.Store(false)
	self := quota.Process{Region: name(p.place), Instance: fmt.Sprint(i), Boot: time.Now().UnixMicro() + int64(i)}
	p.Connect(Peers{
		Self: self, Regions: func() []string { return []string{"r0", "r1", "r2"} },
		Live: func() []quota.Process { return []quota.Process{{Region: "r0"}, {Region: "r1"}, {Region: "r2"}} },
		Send: func(payload []byte) bool {
			return p.bus.Publish(resets+self.Region, fmt.Appendf(nil, "%d %s %s", self.Boot, self.Region, payload)) == nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = p.Run(ctx) })
	parts.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-p.bus.Messages():
				var from quota.Process
				_, _ = fmt.Sscanf(string(m.Data), "%d %s", &from.Boot, &from.Region)
				_ = p.Receive(from, m.Data[len(fmt.Sprintf("%d %s ", from.Boot, from.Region)):])
			}
		}
	})
	p.stop = func() {
		cancel()
		parts.Wait()
		p.bus.Leave()
	}
	w.all[i] = p
}

// edit sets, ends or deletes an override in a process.
func (w *world) edit() {
	p, o := w.all[w.dice.IntN(6)], quota.Override{Tenant: fmt.Sprint("t", w.dice.IntN(5)), By: "x"}
	switch w.dice.IntN(4) {
	case 0:
		o.Deleted = true
	case 1:
		o.ExpiresUS = p.o.TimeUS() + int64(w.dice.IntN(20_000_000)) + 1
		fallthrough
	default:
		o.Limits = []quota.OverrideLimit{{Name: "l", Units: w.dice.Int64N(1000)}}
	}
	if _, err := p.Edit(w.Context(), quota.Edit{Override: o}); err != nil {
		return // its store is away; it may have been carried out
	}
}

// note takes the largest version that any process or store knows of each tenant.
func (w *world) note() {
	for _, p := range w.all {
		for slice := range sliceCount {
			for _, o := range p.table.of(slice) {
				if l := w.largest[o.Tenant]; l == nil || o.Version.Compare(l.Version) > 0 {
					w.largest[o.Tenant] = o
				}
			}
		}
	}
}

// fault does something to the network, a process or a store.
func (w *world) fault() {
	lossy := meshtest.Link{Latency: 40 * time.Millisecond, Jitter: 60 * time.Millisecond, Loss: 0.2, Repeat: 0.2}
	w.net.SetAll(lossy, "r0", "r1", "r2")
	for place := range w.away {
		w.away[place].Store(false)
	}
	place := w.dice.IntN(3)
	switch w.dice.IntN(5) {
	case 0: // cut off, one way or both
		for other := range 3 {
			w.net.Set(name(place), name(other), meshtest.Link{Cut: other != place})
			w.net.Set(name(other), name(place), meshtest.Link{Cut: other != place && w.dice.IntN(3) > 0})
		}
	case 1:
		w.start(w.dice.IntN(6))
	case 2:
		w.away[place].Store(true)
	case 3: // its Redis is emptied, and its processes know what it had
		w.stores[place].empty()
	}
}

// TestConvergenceOnANetwork: processes that run, on a network that loses, repeats, delays, reorders and is cut, with stores that are
// away or emptied, restarts, clocks apart, deletions and ends: once faults other than loss end, all processes and stores hold the
// largest version of each override that anyone ever had, also what no store alone had kept, and nobody goes by another one.
func TestConvergenceOnANetwork(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{T: t, dice: rand.New(rand.NewPCG(seed, 7)), net: meshtest.NewNetwork(seed), largest: map[string]*quota.Override{}}
			for place := range w.stores {
				w.stores[place] = newStore()
			}
			for i := range w.all {
				w.start(i)
			}
			for range 40 {
				w.fault()
				for range w.dice.IntN(4) {
					w.edit()
				}
				w.note()
				time.Sleep(time.Duration(w.dice.IntN(4000)) * time.Millisecond)
				w.note()
			}
			w.net.SetAll(meshtest.Link{Latency: 40 * time.Millisecond, Jitter: 60 * time.Millisecond, Loss: 0.2, Repeat: 0.2}, "r0", "r1", "r2")
			for place := range w.away {
				w.away[place].Store(false)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
			w.converged(seed)
			w.ahead.Store(quota.OverrideKept.Microseconds() + 60_000_000)
			time.Sleep((sliceCount + 40) * scanEvery) // what has ended is forgotten, and nothing of it comes back
			w.forgotten(seed)
			for _, p := range w.all {
				p.stop()
			}
		})
	}
}

func (w *world) converged(seed uint64) {
	if len(w.largest) == 0 {
		w.Errorf("seed %d: nothing was edited", seed)
	}
	for tenant, want := range w.largest {
		for i, p := range w.all {
			if got := p.table.get(tenant); got == nil || got.Version != want.Version || !got.SameTerms(want) {
				w.Errorf("seed %d: process %d has %+v of %s, want %+v", seed, i, got, tenant, want)
			}
			goes, err := p.Of(w.Context(), tenant)
			if in := !want.Deleted && (want.ExpiresUS == 0 || w.timeUS(p.place) < want.ExpiresUS); err != nil || (goes != nil) != in || in && goes.Version != want.Version {
				w.Errorf("seed %d: process %d goes by %+v, %v, of %s, want %+v", seed, i, goes, err, tenant, want)
			}
		}
		for place, s := range w.stores {
			if text := s.text(tenant); !holds(text, want) {
				w.Errorf("seed %d: store %d keeps %q of %s, want %v", seed, place, text, tenant, want.Version)
			}
		}
	}
}

func (w *world) forgotten(seed uint64) {
	for tenant, o := range w.largest {
		kept := !o.Deleted && o.ExpiresUS == 0
		for i, p := range w.all {
			if got := p.table.get(tenant); (got != nil) != kept {
				w.Errorf("seed %d: after 30 days process %d has %+v of %s", seed, i, got, tenant)
			}
		}
		for place, s := range w.stores {
			if text := s.text(tenant); (text != "") != kept {
				w.Errorf("seed %d: after 30 days store %d keeps %q", seed, place, text)
			}
		}
	}
}
