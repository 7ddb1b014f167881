package sim

import (
	"slices"
	"time"
)

// Faults counts what a StrictPlan did, by the words of strictFaults.
type Faults map[string]int64

// strictFault is what goes wrong in a StrictPlan.
type strictFault struct {
	word, name string
	// aimed: random worlds seldom reach what it does, so one of four has such faults alone.
	aimed bool
	plan  func(f *StrictPlan, a strictAt)
}

// strictAt is when and where a strictFault is: in region i, and perhaps in another one, j.
type strictAt struct {
	begins, heals time.Duration
	i, j          int
}

func strictFaults() []strictFault {
	return []strictFault{
		{word: "one-way", name: "cuts one way", plan: func(f *StrictPlan, a strictAt) {
			f.between(a, func(yes bool) { f.Cut(a.i, a.j, yes) })
		}},
		{word: "cut", name: "cuts", plan: func(f *StrictPlan, a strictAt) {
			f.between(a, func(yes bool) { f.Cut(a.i, a.j, yes); f.Cut(a.j, a.i, yes) })
		}},
		{word: "split", name: "splits inside a region", plan: func(f *StrictPlan, a strictAt) {
			f.between(a, func(yes bool) { f.Cut(a.i, a.i, yes); f.CutGossip(a.i, a.i, yes) })
		}},
		{word: "deaf", name: "cuts between one process and a region", plan: func(f *StrictPlan, a strictAt) {
			f.At(a.begins, func() { // a sibling may still see that region
				if p := f.regions[a.i].next(); p != nil {
					f.Deafen(p, a.j, true)
					f.At(a.heals, func() { f.Deafen(p, a.j, false) })
				}
			})
		}},
		{word: "weather", name: "messages lost, repeated and late", plan: func(f *StrictPlan, a strictAt) {
			loss := f.dice.Float64() * 0.5
			f.At(a.begins, func() { f.weather(loss, 0.1, 0.1) })
			f.At(a.heals, func() { f.weather(0, 0, 0) })
		}},
		{word: "disconnect", name: "disconnections", plan: func(f *StrictPlan, a strictAt) {
			f.between(a, func(yes bool) { f.Disconnect(a.i, yes) })
		}},
		{word: "flush", name: "stores lost", plan: func(f *StrictPlan, a strictAt) {
			f.At(a.begins, func() { f.flush(a.i) })
		}},
		{word: "rollback", name: "stores rolled back", plan: func(f *StrictPlan, a strictAt) {
			while := f.span(keptFor)
			f.At(a.begins, func() { f.Rewind(a.i, while) })
		}},
		{word: "step", name: "clocks stepped", plan: func(f *StrictPlan, a strictAt) {
			by := f.stepBy()
			f.At(a.begins, func() { f.step(a.i, by) })
		}},
		{word: "jump", name: "clocks stepped by up to a day", plan: func(f *StrictPlan, a strictAt) {
			by := f.span(48*time.Hour) - 24*time.Hour
			f.At(a.begins, func() { f.step(a.i, by) })
		}},
		{word: "away", name: "stores away", plan: func(f *StrictPlan, a strictAt) {
			f.between(a, func(yes bool) { f.StoreAway(a.i, yes) })
		}},
		{word: "restart", name: "processes restarted", plan: func(f *StrictPlan, a strictAt) {
			f.At(a.begins, func() { f.restart(a.i, a.heals) })
		}},
		{word: "freeze", name: "processes frozen", plan: func(f *StrictPlan, a strictAt) {
			lasts := 200*time.Millisecond + f.span(20*time.Second)
			f.At(a.begins, func() {
				if p := f.regions[a.i].next(); p != nil {
					f.freeze(p, lasts)
				}
			})
		}},
		{word: "process", name: "processes added", plan: func(f *StrictPlan, a strictAt) {
			f.At(a.begins, func() { f.add(a.i, a.heals+f.span(time.Minute)) })
		}},
		{word: "rollout", name: "rollouts of weights, units and regions", plan: func(f *StrictPlan, a strictAt) {
			f.At(a.begins, func() { f.rollout(a.heals-a.begins, anyRollout) })
		}},
		{word: "override", name: "overrides that raise, cut, suspend and end", plan: func(f *StrictPlan, a strictAt) {
			f.At(a.begins, func() { f.edit(a.i) })
			f.At(a.heals, func() { f.edit(a.j) })
		}},
		{word: "override-loss", name: "overrides, losses and restarts of regions that lend and borrow", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			at := a.begins
			for range 4 {
				i := f.dice.IntN(len(f.regions))
				f.At(at, func() { f.edit(i) })
				switch at += f.span(8 * time.Second); f.dice.IntN(6) {
				case 0:
					f.At(at, func() { f.lose(a.i) })
				case 1:
					f.At(at, func() { f.restart(a.j, f.now+f.span(8*time.Second)) })
				case 2:
					f.At(at, func() { f.Cut(a.i, a.j, true) })
					f.At(at+f.span(20*time.Second), func() { f.Cut(a.i, a.j, false) })
				case 3:
					f.At(at, func() { f.moveDemand(a.j) })
				}
			}
		}},
		{word: "second-loss", name: "losses, and others while the share is burnt", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			again := f.span([]time.Duration{50 * time.Millisecond, 1500 * time.Millisecond, f.bounds.keep() * 6 / 5}[f.dice.IntN(3)])
			f.At(a.begins, func() { f.lose(a.i) })
			f.At(a.begins+again, func() { f.lose(a.i) })
		}},
		{word: "lenders-lost", name: "losses of all regions but one at once", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			for k := range f.regions {
				if k != a.i {
					f.At(a.begins+f.span(100*time.Millisecond), func() { f.lose(k) })
				}
			}
		}},
		{word: "failover-killed", name: "failovers with every process killed", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			while, killed := f.span(keptFor), a.begins+f.span(time.Second)
			f.At(a.begins+f.span(time.Second), func() { f.Rewind(a.i, while) })
			f.At(killed, func() { f.killAll(a.i, f.now+f.span(3*time.Second)) })
		}},
		{word: "late-grants", name: "losses of a borrower while grants come late and twice", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			for _, way := range [][2]int{{a.i, a.j}, {a.j, a.i}} {
				f.At(a.begins, func() { f.Weather(way[0], way[1], 0.1, 0.5, 0.5) })
				f.At(a.heals, func() { f.Weather(way[0], way[1], 0, 0, 0) })
			}
			f.At(a.begins+f.span(3*time.Second), func() { f.lose(a.i) })
		}},
		{word: "moving-demand", name: "losses of a lender to which demand moves", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			moves := a.begins + f.span(20*time.Second)
			f.At(a.begins, func() { f.moveDemand(a.i) })
			f.At(moves, func() { f.lose(a.j) })
			f.At(moves+f.span(time.Second), func() { f.moveDemand(a.j) })
		}},
		{word: "shorter-window", name: "losses just after a window has become shorter", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			f.At(a.begins, func() { f.rollout(2*time.Second, shorterWindows) })
			for range 3 {
				f.At(a.begins+f.span(4*time.Second), func() { f.lose(f.dice.IntN(len(f.regions))) })
			}
		}},
		{word: "uneven-ttl", name: "rollouts of another max_ttl in each region, and cuts while demand moves", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			f.At(a.begins, func() { f.rollout(2*time.Second, unevenTTLs) })
			for range 8 {
				f.At(a.begins+f.span(20*time.Second), func() { f.moveDemand(f.dice.IntN(len(f.regions))) })
			}
			f.between(strictAt{begins: a.begins + f.span(20*time.Second), heals: a.heals + 20*time.Second}, func(yes bool) {
				f.Cut(a.i, a.j, yes)
				f.Cut(a.j, a.i, yes)
			})
		}},
		{word: "reset", name: "losses, and resets of a tenant soon after, which reach two regions of five", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			tenant := f.tenants[f.dice.IntN(len(f.tenants))]
			f.At(a.begins, func() { f.lose(a.i) })
			for k := range f.regions {
				for range 2 { // it is repeated
					if f.dice.IntN(5) < 2 {
						f.At(a.begins+200*time.Millisecond+f.span(2800*time.Millisecond), func() { f.Reset(k, tenant) })
					}
				}
			}
		}},
		{word: "start-and-step", name: "steps just after a process has started", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			by, alone := f.stepBy(), f.dice.IntN(2) == 0
			f.At(a.begins, func() {
				if alone {
					f.killAll(a.i, f.now+time.Millisecond)
				} else {
					f.add(a.i, a.heals)
				}
			})
			f.At(a.begins+time.Millisecond+f.span(time.Second), func() { f.step(a.i, by) })
		}},
		{word: "unwatched", name: "steps while no process of a region runs", aimed: true, plan: func(f *StrictPlan, a strictAt) {
			by, down := f.stepBy(), 5*time.Millisecond+f.span(8*time.Second)
			f.At(a.begins, func() { f.killAll(a.i, f.now+down) })
			f.At(a.begins+time.Millisecond+f.span(down-2*time.Millisecond), func() { f.step(a.i, by) })
		}},
	}
}

// planFault plans one fault and its end.
func (f *StrictPlan) planFault(begins, heals time.Duration) {
	n := len(f.regions)
	fault := &f.may[f.dice.IntN(len(f.may))]
	i := f.dice.IntN(n)
	f.faults[fault.word]++
	fault.plan(f, strictAt{begins, heals, i, (i + 1 + f.dice.IntN(n-1)) % n})
}

// between has something begin and end.
func (f *StrictPlan) between(a strictAt, do func(yes bool)) {
	f.At(a.begins, func() { do(true) })
	f.At(a.heals, func() { do(false) })
}

// flush empties a store that somebody watches.
func (f *StrictPlan) flush(place int) {
	if f.regions[place].whole() {
		f.Flush(place)
	}
}

// lose has a store lose all, or its latest writes.
func (f *StrictPlan) lose(place int) {
	if while := f.span(keptFor); f.dice.IntN(2) == 0 {
		f.Rewind(place, while)
	} else {
		f.flush(place)
	}
}

// stepBy draws a step of a clock.
func (f *StrictPlan) stepBy() time.Duration {
	most := []time.Duration{unseen, 3 * unseen, 2 * time.Second, 20 * time.Second}[f.dice.IntN(4)]
	return f.span(2*most) - most
}

// step steps a clock: by as little as nothing follows upon once in a while, since the judge allows for one such step in a
// window; by more forward while somebody may notice, or nobody runs: then the next to start does.
func (f *StrictPlan) step(place int, by time.Duration) {
	r := f.regions[place]
	switch {
	case by.Abs() <= unseen && f.now-r.slid < slideEvery, by > unseen && len(r.processes) > 0 && !r.whole():
		return
	case by.Abs() <= unseen:
		r.slid = f.now
	}
	f.Step(place, by)
}

// slideEvery is longer than what was used or lent may matter.
const slideEvery = time.Minute

// add starts another process in a region, which ends later.
func (f *StrictPlan) add(place int, ends time.Duration) {
	if !f.there[place] || len(f.regions[place].processes) > 2 {
		return
	}
	p, gracefully := f.begin(place, f.regions[place].nextName()), f.dice.IntN(2) == 0
	f.returned(p)
	f.At(ends, func() {
		if !p.gone {
			f.kill(p, gracefully)
		}
	})
}

// restart ends a process of a region, or all, and starts them again. Nobody may be there
// to see the clock step.
func (f *StrictPlan) restart(place int, heals time.Duration) {
	if all := f.regions[place].processes; len(all) > 1 && f.dice.IntN(2) == 0 {
		f.replace(all[0], heals)
		return
	}
	if f.dice.IntN(2) == 0 {
		by := -f.span(20 * time.Second)
		f.At(f.now+time.Millisecond, func() { f.step(place, by) })
		heals = min(heals, f.now+f.span(4*time.Second)+2*time.Millisecond)
	}
	f.killAll(place, heals)
}

// killAll ends all processes of a region, and starts them again.
func (f *StrictPlan) killAll(place int, again time.Duration) {
	for _, p := range slices.Clone(f.regions[place].processes) {
		f.replace(p, again)
	}
}

// replace ends a process, and starts another of its name.
func (f *StrictPlan) replace(p *process, again time.Duration) {
	place := p.region.place
	f.kill(p, f.dice.IntN(2) == 0)
	f.At(again, func() {
		if f.there[place] {
			f.returned(f.begin(place, p.self.Instance))
		}
	})
}

// moveDemand has one region ask for more than it has of each limit, and no other.
func (f *StrictPlan) moveDemand(place int) {
	for t := range f.rates {
		for k := range f.rates[t] {
			f.rates[t][k] = 0
		}
		b := f.bound.promised(f.tenants[t])
		f.rates[t][place] = 1.2 * float64(max(1, b.units)) / b.window.Seconds()
	}
}
