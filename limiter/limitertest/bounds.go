package limitertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// BoundOfAFastClock holds that usage that a window has left counts again when the clock turns out to be fast, and so the
// window to be longer.
func BoundOfAFastClock(t *testing.T, newStore New) {
	const units, w = 30, int64(1_000_000)
	s, now := newStore(t)
	q := Ask(&quota.Limit{Name: "g", Units: units, Window: time.Second, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict})
	check := func(at, ppm int64) store.Verdict {
		t.Helper()
		now(at)
		c := q.Call("acme", store.OpCheck, 1, nil)
		c.Bounds = []quota.Bound{{Share: units, Epoch: 1, FastPPM: ppm}}
		v, err := DecideOne(s, c)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for range 10 {
		check(Epoch, 0)
	}
	late := Epoch + w + w*quota.MostFastPPM/1_000_000 - 1
	for i := range int64(10) {
		if v := check(late, 0); v.Outcome != store.Admitted || v.Limits[0].Remaining != units-1-i {
			t.Fatalf("in a window of its own: %+v", v)
		}
	}
	if v := check(late, quota.MostFastPPM); v.Outcome != store.Admitted || v.Limits[0].Remaining != units-21 {
		t.Errorf("in the longest window, after 20 units: %+v", v)
	}
}

// ReportOfASwing holds that a report which meets a clock that is away, outside its fence, counts as of the fence: what was
// used before it does not age by the swing, which nobody may have noticed when the clock is back.
func ReportOfASwing(t *testing.T, newStore New) {
	const units, w = 10, int64(1_000_000)
	s, now := newStore(t)
	q := Ask(&quota.Limit{Name: "g", Units: units, Window: time.Second, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict})
	for _, by := range []int64{-3600 * w, -3 * w / 2, -w / 2, w / 2, w, 3600 * w} {
		us, tenant := Epoch, fmt.Sprint("by", by)
		ask := func(op store.Op, by int64) store.Verdict {
			t.Helper()
			now(us + by)
			c := q.Call(tenant, op, 1, nil)
			c.Bounds = []quota.Bound{{Share: units, Epoch: 1, FromUS: us - 1000, ToUS: us + 1000}}
			v, err := DecideOne(s, c)
			if err != nil {
				t.Fatal(err)
			}
			us += 10_000
			return v
		}
		for range 6 {
			ask(store.OpCheck, 0)
		}
		first := us
		ask(store.OpReport, by)
		if v := ask(store.OpCheck, 0); v.Outcome != store.Admitted || v.Limits[0].Remaining != units-8 {
			t.Errorf("a swing of %d µs: after 7 of %d units %+v", by, units, v)
		}
		us = first + w - 20_000
		if v := ask(store.OpPeek, 0); v.Limits[0].Remaining != units-3 {
			t.Errorf("a swing of %d µs: when five of 8 have left the window %+v", by, v)
		}
		us = first + w + 2_000
		if v := ask(store.OpCheck, 0); v.Outcome != store.Admitted || v.Limits[0].Remaining != units-2 {
			t.Errorf("a swing of %d µs: when all but one have left the window %+v", by, v)
		}
	}
}

// BehindTheEpoch has a region with a burnt share borrow four units. Then its clock is a little behind the beginning of its epoch,
// by a step that nobody notices: nothing that is admitted may escape the count of the epoch.
func BehindTheEpoch(t *testing.T, newStore New) {
	kept, now := newStore(t)
	q := Ask(&quota.Limit{Name: "g", Units: 30, Window: time.Minute, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict})
	terms := loan.TermsOf(q.Limits[0].WindowUS())
	burnt := quota.Bound{Share: 10, Epoch: 7, SinceUS: Epoch, BurntUntilUS: Epoch + terms.Keep()}
	whole := burnt
	whole.BurntUntilUS = 0
	lends := store.LoanOp{Kind: store.LoanAccept, Grant: loan.Grant{
		From: "b", ID: loan.ID{Epoch: 9, Stamp: 1}, Units: 4, New: true, Epoch: 7, Time: Epoch,
	}}
	for _, row := range []struct {
		tenant string
		bound  quota.Bound
		late   int64 // after the epoch began, µs
		loans  bool
		want   int // of 30 checks
	}{
		{"burnt", burnt, 0, true, 0},
		{"burnt", burnt, -40_000, true, 0},
		{"burnt", burnt, -40_000, false, 0},
		{"burnt", burnt, -1, false, 0},
		{"burnt", burnt, 0, false, 4},
		{"burnt", burnt, 40_000, false, 0},
		{"whole", whole, -40_000, false, 10}, // all of the window counts
		{"whole", whole, 0, false, 0},
	} {
		now(Epoch + row.late)
		c, times, op := q.Call(row.tenant, store.OpCheck, 1, nil), 30, []store.LoanOp(nil)
		if row.loans {
			c, times, op = q.Call(row.tenant, store.OpLoans, 0, nil), 1, []store.LoanOp{lends}
		}
		c.Bounds, c.Loans = []quota.Bound{row.bound}, op
		got := 0
		for range times {
			v, err := DecideOne(kept, c)
			if (err != nil) != (row.loans && row.late < 0) {
				t.Errorf("%+v: %v", row, err)
			}
			if !row.loans && v.Outcome == store.Admitted {
				got++
			}
		}
		if got != row.want {
			t.Errorf("%s, %d µs after its epoch began: %d of %d checks are admitted, want %d", row.tenant, row.late, got, times, row.want)
		}
	}
}
