package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// reservingWorld has two regions that share 100 units a minute, of which a reservation holds some for so long at most.
func reservingWorld(lasts time.Duration) *World {
	p := quota.Policy{Name: "llm", EnforcePercent: -1, OnStoreLoss: quota.FailClosed, Limits: []quota.Limit{
		{Name: "tokens", Scope: quota.ScopeGlobal, Units: 100, Window: time.Minute, MaxOvershoot: quota.Strict},
	}}
	reserving(&p, lasts)
	w := New(Options{Regions: []RegionOptions{{Name: "a"}, {Name: "b"}}, Policies: []quota.Policy{p}, Lossy: true})
	w.RunUntil(10 * time.Second)
	return w
}

// apart cuts both regions from each other.
func apart(w *World, yes bool) {
	w.Cut(0, 1, yes)
	w.Cut(1, 0, yes)
}

// A reservation outlasts the loan that it rests on, and what it is settled with is in windows for a minute more. The lender's record
// stands for as long, and so does its burnt share if it loses its data. Where that was D + W, as without reservations, 150 units
// were held and used at once.
func TestReservationsOutlastLoans(t *testing.T) {
	t.Parallel()
	const lasts = 2 * time.Minute
	for _, row := range []struct {
		name    string
		happens func(w *World, made time.Duration)
		settles time.Duration // after they were made
		told    bool          // that they were not held until then
		again   time.Duration // when region b may admit at first
	}{
		{"nothing", func(*World, time.Duration) {}, 110 * time.Second, false, 165 * time.Second},
		{"the lender loses its data", func(w *World, _ time.Duration) { w.Flush(1) }, 110 * time.Second, false, 165 * time.Second},
		{"the lender goes back by a second", func(w *World, _ time.Duration) { w.Rewind(1, time.Second) }, 110 * time.Second, false, 165 * time.Second},
		{"the lender's clock steps forward", func(w *World, _ time.Duration) { w.Step(1, time.Hour) }, 110 * time.Second, false, 165 * time.Second},
		{"the borrower loses its data", func(w *World, _ time.Duration) { w.Flush(0) }, 110 * time.Second, true, 165 * time.Second},
		{"the borrower's process is another", func(w *World, _ time.Duration) {
			w.kill(w.regions[0].processes[0], false)
			w.begin(0, "next")
		}, 110 * time.Second, true, 165 * time.Second},
		// Its set of holds has its clock from its newest hold on: they count for longer here.
		{"the borrower's clock steps back", func(w *World, made time.Duration) {
			w.At(made+100*time.Second, func() { w.Step(0, -time.Hour) })
		}, 200 * time.Second, true, 165 * time.Second},
		{"the borrower's clock steps forward", func(w *World, made time.Duration) {
			w.At(made+100*time.Second, func() { w.Step(0, 50*time.Second) })
		}, 110 * time.Second, true, 165 * time.Second},
		{"they are extended", func(w *World, made time.Duration) {
			for at := 10 * time.Second; at < 5*time.Minute; at += 10 * time.Second {
				w.At(made+at, func() {
					for _, h := range w.bound.order[0].holds {
						w.Extend(0, h, lasts)
					}
				})
			}
		}, 200 * time.Second, true, 165 * time.Second},
	} {
		w := reservingWorld(lasts)
		var all []*holding
		for deadline := w.now + 20*time.Second; len(all) < 10; w.RunUntil(w.now + 100*time.Millisecond) {
			if h := w.Reserve(0, "acme", 10, lasts); h != nil {
				all = append(all, h)
			}
			if w.now > deadline {
				t.Fatalf("%s: in 20 s region a got %d of 10 reservations", row.name, len(all))
			}
		}
		made := w.now
		apart(w, true)
		row.happens(w, made)
		w.At(made+row.settles, func() {
			for _, h := range all {
				w.Settle(0, h, 10)
			}
		})
		first := time.Duration(0)
		for w.now < made+5*time.Minute {
			if a := w.Check(1, "acme", 1); a.Decision.Allowed && first == 0 {
				first = w.now - made
			}
			w.RunUntil(w.now + time.Second)
		}
		for _, v := range w.bound.broken {
			t.Errorf("%s: at %v: %s", row.name, v.At-made, v.Text)
		}
		if first < row.again || first > 4*time.Minute {
			t.Errorf("%s: region b, which had lent all of its share, admitted again after %v, want from %v to 4m", row.name, first, row.again)
		}
		if told := w.stats.Told == 100; told != row.told || w.stats.Settled+w.stats.Told != 100 {
			t.Errorf("%s: %d units were settled as held and %d as held no more, want all 100 of one kind", row.name, w.stats.Settled, w.stats.Told)
		}
	}
}

// Under a longer max_ttl no reservation lasts for longer than the loans that it rests on allow, as long as the lender has the
// shorter one.
func TestLongerReservationsWaitForLenders(t *testing.T) {
	t.Parallel()
	w := reservingWorld(time.Minute)
	longer := w.o
	longer.Policies = slices.Clone(longer.Policies)
	longer.Policies[0].Limits = slices.Clone(longer.Policies[0].Limits)
	reserving(&longer.Policies[0], 2*time.Minute)
	if !w.reload(0, 1, longer.topology()) {
		t.Fatal("region a did not reload")
	}
	w.RunUntil(w.now + 10*time.Second)
	own := w.Reserve(0, "acme", 50, 2*time.Minute)
	if own == nil || own.ends-w.now < 115*time.Second {
		t.Fatalf("on its own share region a reserved %+v, want for two minutes", own)
	}
	var h *holding
	for deadline := w.now + 20*time.Second; h == nil && w.now < deadline; w.RunUntil(w.now + 100*time.Millisecond) {
		h = w.Reserve(0, "acme", 30, 2*time.Minute)
	}
	if h == nil || h.ends-w.now > time.Minute || h.ends-w.now < 50*time.Second {
		t.Fatalf("on a loan of a lender with one minute, region a reserved %+v at %v, want for a minute", h, w.now)
	}
	if !w.Extend(0, h, 2*time.Minute) || h.ends-w.now > time.Minute {
		t.Errorf("it was extended to %v, %v from now", h.ends, h.ends-w.now)
	}
}

// A reservation on a region's own share is not left to a loan of a region with a shorter max_ttl that came after it: when both
// are cut from each other its lender uses the units again.
func TestReservationsUnderShorterLoans(t *testing.T) {
	t.Parallel()
	const lasts = 30 * time.Second
	p := quota.Policy{Name: "llm", EnforcePercent: -1, OnStoreLoss: quota.FailClosed, Limits: []quota.Limit{
		{Name: "tokens", Scope: quota.ScopeGlobal, Units: 90, Window: 4 * time.Second, MaxOvershoot: quota.Strict},
	}}
	reserving(&p, lasts)
	w := New(Options{Regions: []RegionOptions{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Policies: []quota.Policy{p}, Lossy: true})
	shorter := w.o
	shorter.Policies = []quota.Policy{p}
	shorter.Policies[0].Limits = slices.Clone(p.Limits)
	reserving(&shorter.Policies[0], time.Second)
	w.RunUntil(10 * time.Second)
	if !w.reload(1, 1, shorter.topology()) {
		t.Fatal("region b did not reload")
	}
	w.RunUntil(w.now + 10*time.Second)
	if h := w.Reserve(0, "acme", 30, lasts); h == nil {
		t.Fatal("region a did not get its own share")
	}
	each := func(lasts time.Duration, do func()) {
		for end := w.now + lasts; w.now < end; w.RunUntil(w.now + 50*time.Millisecond) {
			do()
		}
	}
	var borrowed *holding
	each(5*time.Second, func() {
		w.Check(2, "acme", 1)
		if borrowed == nil {
			borrowed = w.Reserve(0, "acme", 20, lasts)
		}
	})
	if borrowed == nil || borrowed.ends-w.now > time.Second {
		t.Fatalf("region a reserved %+v, want on a loan of region b, for a second", borrowed)
	}
	w.Settle(0, borrowed, 0)
	each(5*time.Second, func() { w.Reserve(2, "acme", 5, lasts) })
	apart(w, true)
	each(20*time.Second, func() { w.Check(1, "acme", 5); w.Check(2, "acme", 5) })
	for _, v := range w.bound.broken {
		t.Errorf("at %v: %s", v.At, v.Text)
	}
	if full := w.bound.played(); full < 5*time.Second {
		t.Errorf("the bound was nearly used for %v, want longer", full)
	}
}
