package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// monthly is a partition under a limit with a calendar.
var monthly = ledger.Series{ID: 7, Limit: "standard.monthly", Units: 600, WindowUS: quota.CalendarMonth.Window().Microseconds(), Periods: true}

// periodRegion is a region of TestPeriodsOverYears: its store, its process and its zone data.
type periodRegion struct {
	name     string
	calendar *quota.Calendar
	aheadUS  int64 // its clock, of true time
	clock    *fakeClock
	ledger   *ledger.Ledger
	state    quota.Periods              // of the store
	made     int64                      // generation
	used     map[int64]int64            // truth, by number
	told     map[string]map[int64]int64 // the most that its process received of the others, by region and number
	outbox   []periodsSent
}

type periodsSent struct {
	clockUS int64
	groups  []wire.Group
}

func (r *periodRegion) us() int64 { return startUS + r.clock.us.Load() + r.aheadUS }

// charge has the store count units, and the process know of it.
func (r *periodRegion) charge(units int64) {
	now := r.calendar.At(r.us())
	var older bool
	r.state, older = r.state.At(r.us(), now, r.calendar.Next(now))
	p := r.state.Count(older)
	p.Add(units)
	r.used[p.Number] += units
	r.record(*p)
}

func (r *periodRegion) record(p quota.PeriodUnits) {
	s := monthly
	r.ledger.Record(&s, quota.Counter{Bucket: p.Number, Generation: r.made, Units: p.Units, EndsUS: p.End}, quota.Gauge{}, r.us())
}

// start is a new process, which reads the counters of the store.
func (r *periodRegion) start(t *testing.T) {
	var err error
	r.ledger, err = ledger.New(ledger.Options{
		Self: r.name, Boot: r.us(), Now: r.clock.now, Limit: func(string) (int64, bool) { return monthly.Units, true },
		Regions: func() int { return 3 }, Most: func(string, int64) int64 { return 1 << 40 },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.told = map[string]map[int64]int64{}
	for _, p := range []quota.PeriodUnits{r.state.Older, r.state.Newest} {
		if p.Units > 0 && r.us() < p.End+monthly.WindowUS {
			r.record(p)
		}
	}
}

// receive folds what another region sent, by the bytes.
func (r *periodRegion) receive(t *testing.T, from *periodRegion, m periodsSent, whole bool) {
	u := &wire.Usage{Head: wire.Head{From: quota.Process{Region: from.name, Instance: "a", Boot: 1}, Seq: 1}, TimeUS: m.clockUS, Groups: m.groups}
	if u.Number = 1; whole {
		u.Number, u.Chunk = 0, wire.Chunk{Snapshot: 1, Count: 1}
	}
	u, err := wire.Decode[*wire.Usage](wire.Append(nil, u))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.ledger.Fold(from.name, u.TimeUS, r.clock.now(), u.Groups, whole); err != nil {
		t.Fatal(err)
	}
	if r.told[from.name] == nil {
		r.told[from.name] = map[int64]int64{}
	}
	told := r.told[from.name]
	for _, g := range u.Groups {
		for i := range g.IDs {
			if g.EndsUS+monthly.WindowUS > m.clockUS {
				told[g.Bucket] = max(told[g.Bucket], g.Units[i])
			}
		}
	}
}

// estimates are those of the process in a period, in the order of regions.
func (r *periodRegion) estimates(all []*periodRegion, number int64) (units [3]int64, lost int64) {
	out := make([]int64, 3)
	lost, _ = r.ledger.PeriodEstimates(monthly.ID, number, 1<<40, r.clock.now(), out)
	for i, o := range all {
		if at := r.ledger.Region(o.name); at < len(out) {
			units[i] = out[at]
		}
	}
	return units, lost
}

// TestPeriodsOverYears: through thirty years of months, with messages that are lost, repeated, reordered and late, processes that start
// anew, and regions whose zone data and clocks differ by hours, an estimate has of each region exactly the most that was
// received of the same period, and after a snapshot what it has used. Nothing fades, no other period is in it, and what is over is
// freed.
func TestPeriodsOverYears(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 11))
			clock := &fakeClock{}
			var all []*periodRegion
			for i, name := range []string{"eu-west", "us-east", "ap-south"} {
				zone := time.FixedZone("Here/There", []int{3600, 7200, -1800}[(i+int(seed))%3]) // versions of its data
				r := &periodRegion{
					name: name, clock: clock, aheadUS: dice.Int64N(7_200_000_000), used: map[int64]int64{},
					calendar: &quota.Calendar{Unit: quota.CalendarMonth, Zone: zone, Anchor: quota.Anchor(1 + seed*3%31)},
				}
				r.made = r.us() - 5000
				r.start(t)
				all = append(all, r)
			}
			crossed := 0 // checks where regions were in different periods
			for clock.us.Load() < 30*365*24*3_600_000_000 {
				// Mostly days; often to within an hour of a beginning, where regions are in different periods.
				step := time.Duration(dice.Int64N(int64(9 * 24 * time.Hour)))
				if r := all[dice.IntN(3)]; dice.IntN(3) == 0 {
					step = max(0, time.Duration(r.calendar.At(r.us()).End-r.us()+dice.Int64N(7_200_000_000)-3_600_000_000)*time.Microsecond)
				}
				clock.advance(step)
				for range 1 + dice.IntN(8) {
					r, to := all[dice.IntN(3)], all[dice.IntN(3)]
					switch n := dice.IntN(20); {
					case n < 8:
						r.charge(1 + dice.Int64N(50))
					case n < 13:
						if groups := r.ledger.Take(100, true, 1); len(groups) > 0 {
							r.outbox = append(r.outbox, periodsSent{r.us(), groups})
						}
					case n == 13:
						r.start(t)
					case n == 14 && r != to: // a snapshot
						for groups := range r.ledger.Live(r.name, 0, 100) {
							to.receive(t, r, periodsSent{r.us(), groups}, true)
						}
						now := r.calendar.At(r.us()).Number
						if got, _ := to.estimates(all, now); got[slices.Index(all, r)] != r.used[now] {
							t.Fatalf("after a snapshot %s counts %d of %s in period %d, which used %d", to.name, got[slices.Index(all, r)], r.name, now, r.used[now])
						}
					default:
						if len(r.outbox) > 0 && r != to { // some never arrive, some often
							m := r.outbox[dice.IntN(len(r.outbox))]
							to.receive(t, r, m, false)
						}
					}
					if len(r.outbox) > 6 {
						r.outbox = r.outbox[3:]
					}
				}
				numbers := map[int64]bool{}
				for _, r := range all {
					r.ledger.Sweep()
					now := r.calendar.At(r.us())
					numbers[now.Number] = true
					number := r.ledger.Period(monthly.ID, r.us(), now, r.calendar.Next(now))
					if number != now.Number { // no clock and no data change here
						t.Fatalf("%s takes %d for the period of now, it is %d", r.name, number, now.Number)
					}
					got, lost := r.estimates(all, number)
					for i, o := range all {
						want := r.told[o.name][number]
						if o == r {
							want = r.used[number]
						}
						if got[i] != want || lost != 0 {
							t.Fatalf("at %v %s counts %d of %s in period %d, and %d lost; it was told of %d", time.UnixMicro(r.us()).UTC(), r.name, got[i], o.name, number, lost, want)
						}
					}
				}
				if len(numbers) > 1 {
					crossed++
				}
			}
			if crossed < 20 {
				t.Errorf("only %d times the regions were in different periods", crossed)
			}
			clock.advance(3 * quota.CalendarMonth.Window())
			for _, r := range all {
				sweep(r.ledger)
				if n := r.ledger.Series(); n != 0 {
					t.Errorf("%s keeps %d series of periods that are over", r.name, n)
				}
			}
		})
	}
}

// A period that was lost with the store's data counts as lost in its own period alone, and so does what Local admitted.
func TestPeriodsThatAreLost(t *testing.T) {
	clock := &fakeClock{}
	clock.advance(time.Hour)
	l := newLedger(t, clock, nil)
	month := &quota.Calendar{Unit: quota.CalendarMonth, Zone: time.UTC, Anchor: 1}
	us := startUS + clock.us.Load()
	now := month.At(us)
	s := monthly
	s.Now = now
	record := func(number, generation, units int64) {
		l.Record(&s, quota.Counter{Bucket: number, Generation: generation, Units: units, EndsUS: now.End}, quota.Gauge{}, us)
	}
	want := func(what string, number, lost int64, known quota.Counter) {
		t.Helper()
		out := make([]int64, 2)
		if got, is := l.PeriodEstimates(s.ID, number, 1<<40, clock.now(), out); got != lost || is != known {
			t.Errorf("%s: of period %+d %d are lost and %+v is known, want %d and %+v", what, number-now.Number, got, is, lost, known)
		}
	}
	held := quota.Counter{Bucket: now.Number, Generation: us - 5000, Units: 30}
	record(now.Number, held.Generation, held.Units)
	want("what the store has", now.Number, 0, held)
	want("what the store has", now.Number+1, 0, held)
	l.Local(&s, 4, us)
	want("what it never had", now.Number, 4, held)
	want("what it never had", now.Number+1, 0, held)
	record(now.Number, us, 1)
	want("the store has another key", now.Number, 34, quota.Counter{Bucket: now.Number, Generation: us, Units: 1})
	want("the store has another key", now.Number-1, 0, quota.Counter{Bucket: now.Number, Generation: us, Units: 1})
	if window, _ := l.Estimates(s.ID, s.WindowUS, 1<<40, clock.now(), make([]int64, 2)); window != 0 {
		t.Errorf("a window counts %d units of periods as lost", window)
	}
}

// What is no period of a calendar is not counted, and a period that is claimed to last for ever is forgotten after two windows.
func TestPeriodsOutOfRange(t *testing.T) {
	clock := &fakeClock{}
	l := newLedger(t, clock, nil)
	s := monthly
	for _, c := range []quota.Counter{
		{Bucket: 1, Generation: 1, Units: 1},
		{Bucket: wire.MaxPeriod + 1, Generation: 1, Units: 1, EndsUS: startUS + 1},
		{Bucket: -1, Generation: 1, Units: 1, EndsUS: startUS + 1},
		{Bucket: 1, Generation: 1, Units: 1, EndsUS: 1 << 52},
		{Bucket: 1, Generation: 1, Units: 1, EndsUS: startUS - s.WindowUS},
	} {
		if l.Record(&s, c, quota.Gauge{}, startUS); l.Series() > 0 {
			t.Fatalf("%+v is counted", c)
		}
	}
	group := wire.Group{Limit: s.Limit, WindowUS: s.WindowUS, Bucket: 9, EndsUS: 1<<52 - 1, IDs: []uint64{7}, Generations: []int64{1}, Units: []int64{5}}
	mustFold(t, l, "us-east", startUS, clock.now(), []wire.Group{group})
	clock.advance(2*quota.CalendarMonth.Window() - time.Second)
	for _, want := range []int{1, 0} {
		sweep(l)
		if l.Series() != want {
			t.Errorf("%v after a forged period came %d series are kept, want %d", clock.now(), l.Series(), want)
		}
		clock.advance(time.Second)
	}
}

// A reset drops what was used of a period before its cut, and nothing that is used after it, in a period of any length: the first hour
// of two that clocks show as one began a window before its end by no clock.
func TestResetOfPeriods(t *testing.T) {
	clock := &fakeClock{}
	clock.advance(time.Minute)
	l := newLedger(t, clock, nil)
	s := ledger.Series{ID: 7, Limit: "standard.hourly", Units: 600, WindowUS: time.Hour.Microseconds(), Periods: true, Tenant: "acme"}
	us := startUS + clock.us.Load()
	const number = 17_767_339
	ends := us + (115 * time.Minute).Microseconds()
	used := func() (units [2]int64) {
		l.Purge(s.Tenant, s.ID)
		l.PeriodEstimates(s.ID, number, 1<<40, clock.now(), units[:])
		return units
	}
	fold := func(generation, units int64) {
		mustFold(t, l, "us-east", us, clock.now(), []wire.Group{{
			Limit: s.Limit, WindowUS: s.WindowUS, Bucket: number, EndsUS: ends, IDs: []uint64{s.ID}, Generations: []int64{generation}, Units: []int64{units},
		}})
	}
	l.Record(&s, quota.Counter{Bucket: number, Generation: us - 2000, Units: 30, EndsUS: ends}, quota.Gauge{}, us)
	fold(us-1000, 20)
	if got := used(); got != [2]int64{30, 20} {
		t.Fatalf("before: %v", got)
	}
	l.Supersede(s.Tenant, []wire.Cut{{Region: "eu-west", UpTo: us, State: wire.CutDeleted}, {Region: "us-east", UpTo: us, State: wire.CutDeleted}})
	fold(us-1000, 25) // late
	if got := used(); got != [2]int64{} {
		t.Errorf("after the reset %v are used", got)
	}
	clock.advance(time.Second)
	us += 1_000_000
	l.Record(&s, quota.Counter{Bucket: number, Generation: us - 10, Units: 4, EndsUS: ends}, quota.Gauge{}, us)
	fold(us-20, 3)
	if got := used(); got != [2]int64{4, 3} {
		t.Errorf("of what came after the reset %v are used, want [4 3]", got)
	}
}
