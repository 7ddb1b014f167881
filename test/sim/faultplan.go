package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	meshsync "github.com/regiond/regiond/sync"
)

// FaultPlan is a world and all that will happen in it: traffic, faults and their
// healing, long quiet stretches, all drawn from the seed.
type FaultPlan struct {
	*World
	dice    *rand.Rand // of the plan
	asking  *rand.Rand // of traffic
	lasts   time.Duration
	pause   time.Duration // the longest between two episodes
	rate    float64       // checks a second over all regions; changes
	busy    int           // numbers the bursts of traffic: an older one ends
	tenants []string
	planned int // rollouts
}

// NewFaultPlan draws a world from a seed. lasts is how long it lasts, virtually; 0 leaves
// that to the seed too: some hours with long quiet stretches. With lasts there are
// short ones, and a longer world begins as a shorter one does.
func NewFaultPlan(seed uint64, lasts time.Duration) *FaultPlan {
	dice := rand.New(rand.NewPCG(seed, 0xfa7e))
	o := Options{Seed: seed, Lossy: true, Judged: true, Jitter: time.Duration(1+dice.IntN(40)) * time.Millisecond, Tenants: map[string]string{}}
	o.Delay = time.Duration(5+dice.IntN(120)) * time.Millisecond
	for i := range 2 + dice.IntN(3) {
		r := RegionOptions{Name: fmt.Sprintf("r%d", i), Weight: int64(1 + dice.IntN(3)), Skew: time.Duration(dice.Int64N(int64(4*time.Second))) - 2*time.Second}
		if dice.IntN(4) == 0 {
			r.Processes = 2
		}
		o.Regions = append(o.Regions, r)
	}
	f := &FaultPlan{dice: dice, asking: rand.New(rand.NewPCG(seed, 0xa5c)), pause: longPause}
	f.lasts = 20*time.Minute + time.Duration(dice.Int64N(int64(40*time.Minute)))
	if lasts > 0 {
		f.lasts, f.pause = lasts, shortPause
	}
	fails := []quota.FailMode{quota.FailShare, quota.FailShare, quota.FailOpen, quota.FailClosed}
	for i := range 3 {
		l := quota.Limit{Name: "all", Scope: quota.ScopeGlobal, Units: int64(6 + dice.IntN(200)), Window: time.Duration(5+dice.IntN(56)) * time.Second}
		p := quota.Policy{Name: fmt.Sprintf("p%d", i), Limits: []quota.Limit{l}, EnforcePercent: -1}
		if i > 0 {
			p.OnPartition = fails[dice.IntN(len(fails))]
		}
		o.Policies = append(o.Policies, p)
		tenant := fmt.Sprintf("t%d", i)
		o.Tenants[tenant] = p.Name
		f.tenants = append(f.tenants, tenant)
	}
	f.World = New(o)
	f.plan()
	return f
}

// Run lets all of it happen and returns what did not hold.
func (f *FaultPlan) Run() []Violation {
	for f.now < f.lasts && len(f.judge.broken) == 0 {
		t := f.lasts
		if calls := f.queue.calls; len(calls) > 0 {
			t = max(f.now+10*time.Second, calls[0].at)
		}
		f.RunUntil(min(t, f.lasts))
	}
	if f.seenAll() {
		f.reached(allModes)
	}
	return f.judge.broken
}

// RegionTime is how much time has passed in all regions together.
func (f *FaultPlan) RegionTime() time.Duration { return f.now * time.Duration(len(f.regions)) }

// HardStates is how often each hard state was reached.
func (f *FaultPlan) HardStates() Hard { return f.hard }

func (f *FaultPlan) seenAll() bool {
	for _, m := range []quota.Mode{quota.ModeGlobal, quota.ModeStale, quota.ModePartitioned, quota.ModeJoining, quota.ModeLocal} {
		if !f.judge.modes[m] {
			return false
		}
	}
	return true
}

const (
	longPause  = 12 * time.Minute
	shortPause = 3 * time.Minute
)

// plan draws episodes: a few minutes of traffic and faults, and long quiet between.
func (f *FaultPlan) plan() {
	for at := 5 * time.Second; at < f.lasts; {
		lasts := 40*time.Second + f.span(2*time.Minute)
		f.episode(at, lasts)
		at += lasts + time.Minute + f.span(f.pause)
	}
}

func (f *FaultPlan) span(most time.Duration) time.Duration {
	return time.Duration(f.dice.Int64N(int64(most)))
}

// episode plans traffic for so long, and faults in the middle of it.
func (f *FaultPlan) episode(at, lasts time.Duration) {
	rate := 1 + f.dice.ExpFloat64()*12
	f.At(at, func() {
		f.rate = rate
		f.busy++
		f.traffic(f.busy, at+lasts)
	})
	f.At(at+lasts+settleFor, func() { f.judge.settled() })
	for range 1 + f.dice.IntN(4) {
		begins := at + f.span(lasts/2)
		heals := begins + 500*time.Millisecond + f.span(lasts/2)
		f.planFault(begins, heals)
	}
}

// traffic asks one check after the other until a moment.
func (f *FaultPlan) traffic(burst int, until time.Duration) {
	if burst != f.busy || f.now >= until {
		return
	}
	hot := int(f.now/(20*time.Second)) % len(f.regions)
	place := f.asking.IntN(len(f.regions))
	if f.asking.IntN(3) == 0 {
		place = hot
	}
	cost := int64(1)
	if f.asking.IntN(8) == 0 {
		cost = 1 + f.asking.Int64N(5)
	}
	f.Check(place, f.tenants[f.asking.IntN(len(f.tenants))], cost)
	f.At(f.now+time.Duration(f.asking.ExpFloat64()/f.rate*float64(time.Second)), func() { f.traffic(burst, until) })
}

// planFault plans one fault and its end.
func (f *FaultPlan) planFault(begins, heals time.Duration) {
	n := len(f.regions)
	i := f.dice.IntN(n)
	j := (i + 1 + f.dice.IntN(n-1)) % n
	k := (j + 1) % n
	both := func(a, b int, yes bool) { f.Cut(a, b, yes); f.Cut(b, a, yes) }
	switch f.dice.IntN(21) {
	case 0, 1: // one way
		f.between(begins, heals, func(yes bool) { f.Cut(i, j, yes) })
	case 2, 3, 4: // with a third region it is a bridge: the ends do not see each other, it sees both
		f.between(begins, heals, func(yes bool) { both(i, j, yes) })
	case 5: // a cut that moves
		f.between(begins, heals, func(yes bool) { both(i, j, yes) })
		f.between(heals, heals+heals-begins, func(yes bool) { both(j, k, yes && j != k) })
	case 6:
		f.between(begins, heals, func(yes bool) { f.everywhere(yes, 0.3, 0, 0); f.CutGossip(i, j, yes) })
	case 7:
		f.between(begins, heals, func(yes bool) { f.everywhere(yes, 0.05, 0.3, 0.2) })
	case 8:
		f.between(begins, heals, func(yes bool) { f.Disconnect(i, yes) })
	case 9:
		f.between(begins, heals+time.Minute, func(yes bool) { f.CutGossip(i, j, yes) })
	case 10:
		f.At(begins, func() { f.Flush(i) })
	case 11:
		while := f.span(5*time.Second) + time.Millisecond
		f.At(begins, func() { f.Rewind(i, while) })
	case 12:
		by := f.span(3*time.Hour) - time.Hour
		if f.dice.IntN(2) == 0 {
			by = f.span(4*time.Second) - 2*time.Second
		}
		f.At(begins, func() { f.Step(i, by) })
	case 13:
		f.between(begins, heals, func(yes bool) { f.StoreAway(i, yes) })
	case 14:
		f.between(begins, heals, func(yes bool) {
			for place := range f.regions {
				f.StoreAway(place, yes)
			}
		})
	case 15, 16:
		f.restart(begins, heals, i)
	case 17:
		lasts := 200*time.Millisecond + f.span(20*time.Second)
		f.At(begins, func() {
			if p := f.regions[i].next(); p != nil {
				f.freeze(p, lasts)
			}
		})
	case 18:
		f.sibling(begins, heals, i)
	case 19:
		f.reweigh(begins, heals)
	case 20:
		f.At(begins, func() {
			if p := f.regions[i].next(); p != nil {
				f.poison(p)
				f.gossip.misreport(p, heals-begins)
				f.fault(p, "gossip calls it dead")
			}
		})
		for t := begins; t < heals; t += 5 * time.Second { // flapping, beside it
			f.between(t, t+1900*time.Millisecond, func(yes bool) { both(i, j, yes) })
		}
	}
}

// between has something begin and end.
func (f *FaultPlan) between(begins, ends time.Duration, do func(yes bool)) {
	f.At(begins, func() { do(true) })
	f.At(ends, func() { do(false) })
}

func (f *FaultPlan) everywhere(yes bool, loss, twice, late float64) {
	if !yes {
		loss, twice, late = 0, 0, 0
	}
	f.weather(loss, twice, late)
}

// restart ends a process, with or without a word, and starts it again, perhaps after
// its store has lost everything.
func (f *FaultPlan) restart(begins, heals time.Duration, place int) {
	gracefully, flushed := f.dice.IntN(2) == 0, f.dice.IntN(3) == 0
	f.At(begins, func() {
		if !gracefully { // what is admitted now is not published before the mesh's next tick
			for _, tenant := range f.tenants {
				f.Check(place, tenant, 1)
			}
		}
	})
	f.At(begins+meshsync.TickEvery/4, func() {
		p := f.regions[place].next()
		if p == nil {
			return
		}
		f.kill(p, gracefully)
		f.At(heals, func() {
			if flushed {
				f.Flush(place)
			}
			f.begin(place, p.self.Instance)
		})
	})
}

// sibling starts a second process in a region, and ends it.
func (f *FaultPlan) sibling(begins, heals time.Duration, place int) {
	gracefully := f.dice.IntN(2) == 0
	f.At(begins, func() {
		if len(f.regions[place].processes) > 1 {
			return
		}
		p := f.begin(place, f.regions[place].nextName())
		f.At(heals, func() {
			if !p.gone && len(f.regions[place].processes) > 1 {
				f.kill(p, gracefully)
			}
		})
	})
}

// reweigh gives every region other weights, or other limits, one after the other.
func (f *FaultPlan) reweigh(begins, heals time.Duration) {
	o := f.o
	o.Regions = append([]RegionOptions(nil), o.Regions...)
	o.Policies = append([]quota.Policy(nil), o.Policies...)
	limits := f.dice.IntN(3) == 0
	if limits {
		for i := range o.Policies {
			l := o.Policies[i].Limits[0]
			l.Units = 6 + f.dice.Int64N(200)
			o.Policies[i].Limits = []quota.Limit{l}
		}
	} else {
		for i := range o.Regions {
			o.Regions[i].Weight = 1 + f.dice.Int64N(4)
		}
	}
	f.planned++
	version := f.planned
	var top *region.Topology
	f.At(begins, func() { top = o.topology() })
	for place := range f.regions {
		f.At(begins+f.span(heals-begins), func() {
			f.reload(place, version, top)
		})
	}
}
