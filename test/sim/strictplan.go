package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// StrictPlan is a world of limits with a bound, in which everything goes wrong that may:
// stores that lose what they hold or go back to what they held, clocks that step either
// way or run up to 2 % fast or slow, processes that are killed, frozen, several to a region and at odds,
// cuts of any shape also inside a region, messages that are lost, repeated or late, and
// topologies that change. The bound is judged throughout.
type StrictPlan struct {
	*World
	dice    *rand.Rand // of the plan
	asking  *rand.Rand // of traffic
	lasts   time.Duration
	busy    int
	rates   [][]float64 // checks a second, by tenant and region
	tenants []string
	planned int
	weights []int64 // 0: the region is not there
	there   []bool  // whether the region may have processes
	units   []int64 // by policy
	windows []time.Duration
	maxTTLs []time.Duration // of reservations, the longest in any region; 0: there are none
	may     []strictFault
	faults  Faults
}

// strictEpisode is how much longer than a minute an episode is at most.
const strictEpisode = 3 * time.Minute

// maxOverride is that of every topology of the world.
const maxOverride = region.DefaultMaxOverride

const tenPercent = quota.Strict + 10*100

// NewStrictPlan draws a world from a seed. lasts is how long it lasts, virtually, with
// short pauses between the episodes; 0 is an hour, most of it quiet. only are the words of the faults that it has; none
// leaves them to the seed.
func NewStrictPlan(seed uint64, lasts time.Duration, only ...string) (*StrictPlan, error) {
	dice := rand.New(rand.NewPCG(seed, 0x57a1c7))
	o := Options{
		Seed: seed, Lossy: true, Slow: true, Jitter: time.Duration(1+dice.IntN(40)) * time.Millisecond, Tenants: map[string]string{},
		Delay: time.Duration(5+dice.IntN(150)) * time.Millisecond, LoanStep: 50 * time.Millisecond, AllTend: dice.IntN(2) == 0, Folly: dice.IntN(2) == 0, Overridden: true,
	}
	f := &StrictPlan{dice: dice, asking: rand.New(rand.NewPCG(seed, 0xa5c)), lasts: lasts, faults: Faults{}}
	if err := f.aim(only); err != nil {
		return nil, err
	}
	pause := shortPause
	if lasts == 0 {
		f.lasts, pause = time.Hour, longPause
	}
	for i := range []int{2, 2, 2, 3, 3, 3, 4, 5}[dice.IntN(8)] {
		f.weights = append(f.weights, int64(1+dice.IntN(3)))
		o.Regions = append(o.Regions, RegionOptions{
			Name: fmt.Sprintf("r%d", i), Weight: f.weights[i], Processes: 1 + dice.IntN(8)/5, PacePPM: dice.Int64N(2*pacePPM+1) - pacePPM,
			Skew: time.Duration(dice.Int64N(int64(48*time.Hour))) - 24*time.Hour,
		})
	}
	if len(f.weights) > 2 && dice.IntN(3) == 0 {
		f.weights[len(f.weights)-1] = 0
		o.Regions[len(f.weights)-1].Absent = true
	}
	for _, weight := range f.weights {
		f.there = append(f.there, weight > 0)
	}
	reserves := f.asking.IntN(2)
	for i, overshoot := range []quota.Overshoot{quota.Strict, tenPercent} {
		units := []int64{3, 10, 30, 100}[dice.IntN(4)]
		window := []time.Duration{time.Second, 4 * time.Second, 7 * time.Second, 10 * time.Second}[dice.IntN(4)]
		p := quota.Policy{Name: fmt.Sprintf("p%d", i), EnforcePercent: -1, OnStoreLoss: quota.FailClosed, Limits: []quota.Limit{
			{Name: "all", Scope: quota.ScopeGlobal, Units: units, Window: window, MaxOvershoot: overshoot},
		}}
		maxTTL := time.Duration(0)
		if i == reserves {
			maxTTL = reservationsLast[f.asking.IntN(len(reservationsLast))]
			reserving(&p, maxTTL)
		}
		tenant := fmt.Sprintf("t%d", i)
		o.Policies, o.Tenants[tenant] = append(o.Policies, p), p.Name
		f.tenants, f.units, f.windows = append(f.tenants, tenant), append(f.units, units), append(f.windows, window)
		f.maxTTLs = append(f.maxTTLs, maxTTL)
	}
	f.World = New(o)
	for range f.tenants {
		f.rates = append(f.rates, make([]float64, len(f.weights)))
	}
	for at := 5 * time.Second; at < f.lasts; {
		lasts := time.Minute + f.span(strictEpisode)
		f.episode(at, lasts)
		at += lasts + time.Minute + f.span(pause)
	}
	return f, nil
}

// reservationsLast are what max_ttl may be.
var reservationsLast = []time.Duration{time.Second, 4 * time.Second, 15 * time.Second, 30 * time.Second}

// reserving has a policy take reservations of so long; 0: it takes none.
func reserving(p *quota.Policy, maxTTL time.Duration) {
	if maxTTL > 0 {
		p.MaxTTL, p.MaxHold = maxTTL, 100
		p.Limits[0].Counts, p.Limits[0].HeldFor = quota.CountsTokens, maxTTL
	}
}

// aim chooses the faults that there may be.
func (f *StrictPlan) aim(only []string) error {
	all := strictFaults()
	aimed := f.dice.IntN(4) == 0
	for _, fault := range all {
		if len(only) > 0 && slices.Contains(only, fault.word) || len(only) == 0 && fault.aimed == aimed {
			f.may = append(f.may, fault)
		}
	}
	if aimed && len(only) == 0 {
		at := f.dice.IntN(len(f.may))
		f.may = f.may[at : at+1]
	}
	if len(f.may) < len(only) || len(f.may) == 0 {
		return fmt.Errorf("sim: of the faults %q there is not each", only)
	}
	return nil
}

func (f *StrictPlan) span(most time.Duration) time.Duration {
	return time.Duration(f.dice.Int64N(int64(most)))
}

// Run lets all of it happen and returns what did not hold.
func (f *StrictPlan) Run() []Violation {
	for f.now < f.lasts && len(f.bound.broken) == 0 {
		f.RunUntil(min(f.now+10*time.Second, f.lasts))
	}
	return f.bound.broken
}

// RegionTime is how much time has passed in all regions together, and Played for how much
// of it a bound was so near that a mistake would have shown.
func (f *StrictPlan) RegionTime() time.Duration { return f.now * time.Duration(len(f.regions)) }

// Played is the part of RegionTime in which some bound was nine tenths used.
func (f *StrictPlan) Played() time.Duration {
	return f.bound.played() * time.Duration(len(f.regions))
}

// episode plans traffic for so long, and faults from its beginning to its end.
func (f *StrictPlan) episode(at, lasts time.Duration) {
	f.At(at, func() {
		f.busy++
		for t := range f.tenants {
			f.demand(t, f.busy, at+lasts)
			for place := range f.regions {
				f.traffic(t, place, f.busy, at+lasts)
			}
		}
	})
	every := 5*time.Second + f.span(40*time.Second) // by the fault
	for t := at + f.span(every); t < at+lasts; t += f.span(2*every) + time.Millisecond {
		f.planFault(t, t+200*time.Millisecond+f.span(lasts/4))
	}
}

// demand draws by how much each region asks, and draws again.
func (f *StrictPlan) demand(tenant, burst int, until time.Duration) {
	if burst != f.busy || f.now >= until {
		return
	}
	b := f.bound.promised(f.tenants[tenant])
	window := b.window
	mean := float64(max(1, b.units)) / window.Seconds() / float64(len(f.regions))
	for place := range f.regions {
		f.rates[tenant][place] = mean * []float64{0, 0.1, 1, 1.3, 2, 3}[f.asking.IntN(6)]
	}
	f.At(f.now+window+time.Duration(f.asking.Int64N(int64(4*window))), func() { f.demand(tenant, burst, until) })
}

// traffic asks one check after the other of a region.
func (f *StrictPlan) traffic(tenant, place, burst int, until time.Duration) {
	if burst != f.busy || f.now >= until {
		return
	}
	rate, wait := f.rates[tenant][place], time.Second
	if rate > 0 {
		wait = min(wait, time.Duration(f.asking.ExpFloat64()/rate*float64(time.Second)))
	}
	if wait < time.Second {
		f.At(f.now+wait, func() {
			cost := int64(1)
			if f.asking.IntN(10) == 0 {
				cost += f.asking.Int64N(3)
			}
			if f.maxTTLs[tenant] > 0 && f.asking.IntN(4) > 0 {
				f.reserve(place, tenant, cost)
				return
			}
			f.Check(place, f.tenants[tenant], cost)
		})
	}
	f.At(f.now+wait, func() { f.traffic(tenant, place, burst, until) })
}

const (
	unevenTTLs     = 4 // each region has another max_ttl, until the next rollout
	anyRollout     = 5 // one of the above, or of other weights, units or regions
	shorterWindows = 6
)

// rollout gives each region another topology at its own time: other weights, other units,
// a region less or one more, another max_ttl, or shorter windows. It is begun only when the one before is over.
func (f *StrictPlan) rollout(lasts time.Duration, kind int) {
	weights, units, windows, maxTTLs := slices.Clone(f.weights), slices.Clone(f.units), slices.Clone(f.windows), slices.Clone(f.maxTTLs)
	gone, come := -1, slices.Index(weights, 0)
	own := make([]time.Duration, len(weights)) // max_ttl of each region; 0: that of all
	if kind == anyRollout {
		kind = f.dice.IntN(anyRollout)
	}
	switch i := f.dice.IntN(len(weights)); kind {
	case unevenTTLs:
		for i := range own {
			own[i] = reservationsLast[f.dice.IntN(len(reservationsLast))]
		}
		for i := range maxTTLs {
			if maxTTLs[i] > 0 {
				maxTTLs[i] = slices.Max(own)
			}
		}
		come = -1
	case shorterWindows:
		for i := range windows {
			windows[i] = max(time.Second, windows[i]*time.Duration(1+f.dice.IntN(3))/4).Truncate(time.Millisecond)
		}
		come = -1
	case 0:
		for i := range units {
			units[i] = []int64{3, 10, 30, 100}[f.dice.IntN(4)]
		}
		come = -1
	case 1:
		if come >= 0 {
			weights[come] = 1 + f.dice.Int64N(3)
			break
		}
		if len(weights) > 2 {
			weights[i], gone = 0, i
		}
	default:
		come = -1
		for i := range weights {
			if weights[i] > 0 {
				weights[i] = 1 + f.dice.Int64N(3)
			}
		}
	}
	o := f.o
	o.Regions = slices.Clone(o.Regions)
	for i := range weights {
		o.Regions[i].Weight, o.Regions[i].Absent = weights[i], weights[i] == 0
	}
	topology := func(own time.Duration) *region.Topology {
		o := o
		o.Policies = slices.Clone(o.Policies)
		for i := range units {
			l := o.Policies[i].Limits[0]
			l.Units, l.Window = units[i], windows[i]
			o.Policies[i].Limits = []quota.Limit{l}
			if maxTTLs[i] > 0 {
				reserving(&o.Policies[i], cmp.Or(own, maxTTLs[i]))
			}
		}
		top := o.topology()
		top.Revision = int64(f.planned)
		return top
	}
	if f.bounds.next != nil {
		return
	}
	f.planned++
	f.weights, f.units, f.windows, f.maxTTLs, f.bounds.next = weights, units, windows, maxTTLs, boundsOf(topology(0))
	f.fault(nil, "rollout %d: weights %v, units %v, windows %v, max_ttl %v %v", f.planned, weights, units, windows, maxTTLs, own)
	if gone >= 0 {
		for _, p := range slices.Clone(f.regions[gone].processes) {
			f.kill(p, f.dice.IntN(2) == 0)
		}
		f.there[gone] = false
	}
	waiting := len(f.regions)
	for place := range f.regions {
		f.At(f.now+f.span(lasts), func() { f.adopt(place, f.planned, topology(own[place]), func() { f.adopted(&waiting, come) }) })
	}
}

// adopt has a region go by a topology as soon as its processes and its store can.
func (f *StrictPlan) adopt(place, version int, top *region.Topology, done func()) {
	if f.reload(place, version, top) {
		done()
		return
	}
	f.At(f.now+time.Second, func() { f.adopt(place, version, top, done) })
}

// adopted counts a region that goes by the new topology. After the last, and for as long as
// what was used and lent before may matter, the operator waits; then a new region starts.
func (f *StrictPlan) adopted(waiting *int, come int) {
	if *waiting--; *waiting > 0 {
		return
	}
	f.At(f.now+f.bounds.keep()+f.span(5*time.Second), func() {
		f.bounds.settle()
		if come >= 0 {
			f.there[come] = true
			f.returned(f.begin(come, f.regions[come].nextName()))
		}
	})
}
