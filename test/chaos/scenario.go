//go:build linux

package chaos

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// What regiond promises about the times of a fault.
const (
	// NoticeSilence is how long until a peer that has gone silent is treated as unreachable.
	NoticeSilence = 1800 * time.Millisecond
	// NoticeOneWay is the same if one of two no longer receives the other's messages.
	NoticeOneWay = 2500 * time.Millisecond
	// NoticeRedis is how long until an answer reports that Redis is unavailable, on top of what the
	// bare handler took at that time.
	NoticeRedis = 60 * time.Millisecond
	// Again is how long after healing until all regions count on each other: two seconds
	// and the hysteresis of one and a half.
	Again = 3500 * time.Millisecond
	// AgainRedialled is the same where connections between NATS servers were given up
	// and have to be made again.
	AgainRedialled = Again + 2*time.Second
	// late is how long another region's admissions may be unknown in normal operation:
	// a message's way, the gap between messages, and a busy machine.
	late = 500 * time.Millisecond
)

// DefaultRate is how many requests a second a scenario sends at most, over all regions; a machine that
// has less room gets fewer (settle). CHAOSRATE in the environment is another.
const DefaultRate = 1000

// Scenario is a fault under traffic and the expected behaviour.
type Scenario struct {
	World   Options
	Profile traffic.Profile
	Fault   func(w *World) Fault
	// Lasts is how long the fault stands.
	Lasts time.Duration
	// Rate is how many requests a second are sent, when it is not CHAOSRATE's.
	Rate int
	// Overload is a region that is asked for five times what its Redis can do, before, during and
	// after the fault; "" for none.
	Overload string
	// Singles adds up what became of the checks that come one by one in that region, for the test
	// to judge over several scenarios; nil: this one is judged alone.
	Singles *judge.Singles
	// Busy is a region whose Redis the fault makes slow, and not so slow that a fail mode
	// may answer; "" for none.
	Busy string
	// Switches is the limit of class dear that the fault reloads; 0 for none.
	Switches int64
	// Less is the limit of class strict that the fault reloads, below BoundUnits; 0 for none.
	Less int64
	// Bounded has limits with a bound be asked for and judged beside the rest.
	Bounded bool

	// Notice are the regions whose answers must report the fault, in one of
	// Modes, and how soon. Others may.
	Notice map[string]time.Duration
	Modes  []string
	// Unmoved are the regions whose answers must never report it.
	Unmoved []string
	// Again is how long after healing all regions count on each other at the latest.
	Again time.Duration
	// Down are the regions that are part of the fault themselves: requests to them may
	// fail, or be late, until they are back.
	Down []string
	// Forgets are the regions whose Redis loses its data when the fault begins, and
	// again when it is healed if it was away.
	Forgets []string
	// Loses are the regions whose Redis loses the last of what it had confirmed, and
	// keeps the rest. Their totals go on under the same epoch, so that others do not count
	// what is admitted until it has caught up: at most what was lost.
	Loses []string
	// Burns are further regions where a loss cannot be ruled out, so that their shares are burnt.
	Burns []string
	// Groups are the sums of parts that groups of regions are held to in a partition.
	Groups []Group
	// Lent is the region whose share of month is burnt by the fault, and which has to admit what others lend it within
	// lentWithin of the loss; "" for none.
	Lent string
	// Stepped is set when a Redis's clock is. Wrong are the regions whose clocks are wrong for any reason: their bounds close
	// for closedWithin at most.
	Stepped bool
	Wrong   []string
	// Shifted is set when Redis's replies are not those of their calls: what such a reply
	// refuses may have been carried out.
	Shifted bool
	// Repeats is set when the fault comes and goes: regions may be dark at any time.
	Repeats bool
	// brief is set when the fault may be over before it is noticed.
	brief bool
}

// Group is regions that see each other alone, and the sum of their parts of HotUnits.
type Group struct {
	Regions []string
	Units   int64
}

// trial is a scenario at work.
type trial struct {
	Scenario
	t        *testing.T
	w        *World
	fault    Fault
	before   map[string]resources
	injected time.Duration
	acted    time.Duration // when the fault was there
	healed   time.Duration
	again    time.Duration // when all counted on each other
	ended    time.Duration // of the traffic
	crowd    judge.Overload
	figures  Figures
	watch    *watch // of limits with a bound; nil if they are not judged
	objects  []string
	late     []string // objections to promptness
}

// LongEnv in the environment has every scenario run at three durations.
const LongEnv = "CHAOSLONG"

// Run runs a scenario and fails t if an oracle objects.
func (s Scenario) Run(t *testing.T) {
	t.Helper()
	if os.Getenv(LongEnv) == "" {
		s.Once(t)
		return
	}
	for _, lasts := range []time.Duration{500 * time.Millisecond, s.Lasts, time.Minute} {
		t.Run(lasts.String(), func(t *testing.T) {
			one := s
			one.Lasts = lasts
			if lasts < s.Lasts { // too short to be noticed for sure, or for groups to form
				one.Notice, one.Groups = nil, nil
				one.Repeats, one.brief = s.Repeats || len(s.Notice) > 0, true
			}
			one.Once(t)
		})
	}
}

// maxRuns is how often a scenario is run at most until one of its runs is conclusive,
// and breather how long after one that did not: a machine has its busy times.
const (
	maxRuns  = 3
	breather = 10 * time.Second
)

// Once runs a scenario as it is. A run that an oracle objects to is inconclusive if the
// machine left even the bare handler without a processor meanwhile, or if a Redis that is meant to be
// overloaded was asked for too little, and is repeated, unless a bound was exceeded: no machine is an excuse for that. What
// the last run shows counts, but for promptness where it could not be judged there either.
func (s Scenario) Once(t *testing.T) {
	t.Helper()
	for run := 1; !s.attempt(t, run); run++ {
		t.Logf("run %d of at most %d follows", run+1, maxRuns)
		time.Sleep(breather)
	}
}

// attempt runs a scenario and reports whether the run was conclusive.
func (s Scenario) attempt(t *testing.T, run int) bool {
	t.Helper()
	scope := &scope{TB: t}
	defer scope.end()
	x := &trial{Scenario: s, t: t, w: Start(scope, s.World)}
	x.fault = s.Fault(x.w)
	x.figures = Figures{Test: t.Name(), Fault: x.fault.Name, Profile: s.Profile.Name, Run: run, Fullest: map[string]judge.Fullest{}}
	if s.Bounded {
		x.watch = x.w.watchBounds()
		scope.Cleanup(x.watch.end)
	}
	if err := x.settle(); err != nil {
		t.Fatal(err)
	}
	x.figures.Rate = x.rate()
	var err error
	if x.before, err = x.w.holdings(); err != nil {
		t.Fatal(err)
	}
	x.traffic(0, x.act)
	if x.watch != nil {
		x.watch.end()
	}
	x.judge()
	f := &x.figures
	f.Unjudged = f.Starved > 0 && f.Starved >= f.Judged
	busy := x.crowd.Region != "" && (f.Overload.Judged == 0 || f.Overload.Short)
	broken := slices.ContainsFunc(slices.Collect(maps.Values(f.Fullest)), func(w judge.Fullest) bool { return w.Units > w.Of })
	if all := slices.Concat(x.objects, x.late); !broken && (f.Unjudged || busy || f.Starved > 0 && len(all) > 0) {
		t.Logf("the bare handler took more than %v in %d of %d seconds, and overload is judged in %d (asked for too little: %v): this may be the machine's doing: %q",
			judge.Starved, f.Starved, f.Starved+f.Judged, f.Overload.Judged, f.Overload.Short, all)
		if run < maxRuns {
			return false
		}
	}
	if !f.Unjudged {
		x.object(x.late...)
	}
	x.finish()
	return true
}

// scope is a part of a test that cleans up at its own end.
type scope struct {
	testing.TB
	cleanups []func()
}

// Cleanup implements testing.TB.
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

func (x *trial) object(objects ...string) { x.objects = append(x.objects, objects...) }

// traffic runs for a time, or while act does.
func (x *trial) traffic(lasts time.Duration, act func()) {
	load := traffic.Load{Profile: x.Profile, Rate: x.rate(), Bare: rate() / 3, Seed: x.World.Seed, History: x.w.History}
	if x.watch != nil {
		load.Bounded = true
	}
	for _, r := range x.w.Regions {
		load.Targets = append(load.Targets, r.target)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		load.Run(ctx)
	}()
	if act == nil {
		time.Sleep(lasts)
	} else {
		act()
	}
	cancel()
	<-done
	x.ended = x.w.History.Now()
}

// act does the fault to a world at work, and heals it in any case.
func (x *trial) act() {
	h := x.w.History
	if x.Overload != "" {
		defer x.overload()()
	}
	time.Sleep(1500 * time.Millisecond) // what an answer looked like before
	x.injected = h.Note("inject: " + x.fault.Name)
	if err := x.fault.Inject(); err != nil {
		x.object("inject: " + err.Error())
	}
	x.acted = h.Now()
	time.Sleep(x.Lasts)
	x.healed = h.Note("heal")
	if err := x.fault.Heal(); err != nil {
		x.object("heal: " + err.Error())
	}
	if x.brief { // a connection that is being made anew is silent until it is
		time.Sleep(x.injected + NoticeOneWay - h.Now())
	}
	again, err := x.w.Await(x.Again, "all regions count on each other again", x.w.global)
	if err != nil {
		x.object(err.Error())
	}
	x.again = h.Note("all regions count on each other")
	x.figures.AgainMS = ms(again - x.healed)
	time.Sleep(time.Second) // and what one looks like after
}

// overload overloads a region's Redis and returns how to end that.
func (x *trial) overload() (end func()) {
	o, err := x.w.Overload(x.Overload)
	if err != nil {
		x.object("overload: " + err.Error())
		return func() {}
	}
	x.crowd = judge.Overload{Region: x.Overload, Times: overloadTimes, Span: judge.Span{From: o.Began}, Full: o.Full}
	x.figures.Capacity = o.Capacity
	return func() { x.crowd.To = o.End() }
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (x *trial) rate() int { return x.paced(cmp.Or(x.Rate, rate())) }

// rate is how many requests are sent a second.
func rate() int {
	if n, err := strconv.Atoi(os.Getenv("CHAOSRATE")); err == nil && n > 0 {
		return n
	}
	return DefaultRate
}

// excused are requests to a region that is part of the fault, while it is.
func (x *trial) excused(r *traffic.Record) bool {
	return slices.Contains(x.Down, r.Region) && !r.Bare && r.Return >= x.injected && r.Call <= x.again
}

// undecided are requests that may be shed while it is not known yet whether Redis is busy or away.
func (x *trial) undecided(r *traffic.Record) bool {
	_, loses := x.Notice[r.Region]
	return x.excused(r) || loses && slices.Contains(x.Modes, "local") && r.Return > x.injected && r.Call < x.injected+NoticeRedis
}

// losses are when Redis forgot: at the fault, or with its return, when regiond's own
// count of the time between is not carried into Redis.
func (x *trial) losses() (all []judge.Loss) {
	for _, name := range slices.Concat(x.Forgets, x.Loses) {
		all = append(all,
			judge.Loss{Region: name, Span: judge.Span{From: x.injected, To: x.acted}},
			judge.Loss{Region: name, Span: judge.Span{From: x.healed, To: x.again}})
	}
	return append(all, x.w.stepped...)
}

// dark is when regions could not exchange messages.
func (x *trial) dark() []judge.Span {
	if x.Repeats {
		return []judge.Span{{From: x.injected, To: x.again}}
	}
	if len(x.Notice) == 0 && len(x.Down) == 0 {
		return nil
	}
	return []judge.Span{{From: x.injected - late, To: x.injected + NoticeOneWay}}
}

func (x *trial) judge() {
	h, records := x.w.History, x.w.History.Records()
	x.object(judge.Answered(records, x.excused)...)
	x.object(judge.Labelled(records)...)
	x.object(judge.Modest(records, x.excused)...)
	bounds := judge.Stated()
	if x.Overload != "" {
		bounds = judge.StatedOverloaded(throttlePause, len(x.Modes) > 0)
	}
	excess, objects := judge.Prompt(records, x.excused, bounds)
	x.late = objects
	x.figures.excess(excess)
	edge := judge.Limit{Units: EdgeUnits, Window: EdgeWindow}
	x.object(judge.Window(records, traffic.Edge, edge, x.losses(), x.Stepped)...)
	if !x.Stepped {
		x.figures.Linear, objects = judge.Linear(records, h.WallUS, traffic.Edge, edge, x.unsure())
		x.object(objects...)
	}
	hot := judge.Common{
		Limit: judge.Limit{Units: HotUnits, Window: HotWindow}, Regions: Names(), Late: late,
		Dark: x.dark(), Losses: x.losses(), Cuts: x.cuts(), Again: x.again, Stepped: x.Stepped,
	}
	over, objects := judge.Global(records, h.WallUS, traffic.Hot, hot)
	x.object(objects...)
	x.figures.Over, x.figures.Explained = over.Units, over.Explained
	x.object(judge.Share(records, h.WallUS, traffic.Hot, hot, x.cuts())...)
	x.bounds(records)
	x.object(x.noticed(records)...)
	if slices.Contains(x.Modes, "local") {
		x.crowd.Away = []judge.Span{{From: x.injected, To: x.again}}
	}
	if x.Busy != "" {
		x.crowd = judge.Overload{Region: x.Busy, Span: judge.Span{From: x.injected, To: x.again}, Full: x.injected}
	}
	x.figures.Overload, objects = judge.Overloaded(records, x.undecided, x.crowd)
	x.object(objects...)
	if singles := x.figures.Overload.Singles; x.Singles != nil {
		x.Singles.Add(singles)
	} else if x.crowd.Region != "" && singles.Asked > 0 { // none was asked in a second that can be judged: Judged is 0
		x.object(singles.Judge()...)
	}
	if x.Switches != 0 {
		x.object(judge.Switched(records, traffic.Dear, DearUnits, x.Switches, judge.Span{From: x.injected, To: x.healed})...)
	}
	took, exact, objects := x.w.Settled(records, known{forgot: x.Forgets, lost: x.Loses, down: x.Down, shifted: x.Shifted})
	x.object(objects...)
	x.figures.SettledMS, x.figures.Estimates = ms(took), exact
	x.object(x.w.Flat(x.before)...)
	for _, r := range x.w.Regions {
		for _, extra := range r.target.Regiond.Extra() {
			x.object("answered: " + r.Name + ": " + extra)
		}
	}
	if a := x.fault.Achieved; a != nil {
		x.figures.Achieved = a
		x.object(a.answers(records, judge.Span{From: x.injected, To: x.again})...)
	}
	x.figures.count(records)
}

// unsure is when Redis may have lost writes or executed calls late without an answer.
func (x *trial) unsure() []judge.Span {
	if slices.Contains(x.Modes, "local") || len(x.Forgets)+len(x.Loses)+len(x.Down) > 0 {
		return []judge.Span{{From: x.injected, To: x.again}}
	}
	return nil
}

func (x *trial) cuts() (all []judge.Cut) {
	for _, g := range x.Groups {
		all = append(all, judge.Cut{
			Regions: g.Regions, Units: g.Units,
			Span: judge.Span{From: x.injected + NoticeOneWay, To: x.healed},
		})
	}
	return all
}
