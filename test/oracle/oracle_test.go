package oracle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
)

type admissions []oracle.Admission

func TestWindow(t *testing.T) {
	for _, row := range []struct {
		name  string
		all   admissions
		worst oracle.Span
		ok    bool // under 3 units in 10 µs
	}{
		{"nothing", nil, oracle.Span{}, true},
		{"full", admissions{{1, 1}, {5, 1}, {10, 1}}, oracle.Span{End: 10, Units: 3}, true},
		{"the fourth, when the first has just left", admissions{{1, 1}, {5, 1}, {10, 1}, {11, 1}}, oracle.Span{End: 10, Units: 3}, true},
		{"the fourth, a microsecond early", admissions{{1, 1}, {5, 1}, {9, 1}, {10, 1}}, oracle.Span{End: 10, Units: 4}, false},
		{"four at once", admissions{{7, 1}, {7, 1}, {7, 1}, {7, 1}}, oracle.Span{End: 7, Units: 4}, false},
		{"two of cost 2", admissions{{7, 2}, {16, 2}}, oracle.Span{End: 16, Units: 4}, false},
		{"not in order", admissions{{16, 2}, {30, 1}, {7, 2}}, oracle.Span{End: 16, Units: 4}, false},
	} {
		before := slices.Clone(row.all)
		if worst, ok := oracle.Window(row.all, 3, 10); worst != row.worst || ok != row.ok {
			t.Errorf("%s: %+v %v, want %+v %v", row.name, worst, ok, row.worst, row.ok)
		}
		if !slices.Equal(before, row.all) {
			t.Errorf("%s: the record was changed", row.name)
		}
	}
}

// TestWindowEveryEnd holds Window against windows that end at every microsecond.
func TestWindowEveryEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all admissions
		for range rapid.IntRange(0, 20).Draw(t, "admissions") {
			all = append(all, oracle.Admission{US: rapid.Int64Range(0, 40).Draw(t, "us"), Cost: rapid.Int64Range(1, 4).Draw(t, "cost")})
		}
		window := rapid.Int64Range(1, 50).Draw(t, "W")
		most := int64(0)
		for end := int64(0); end <= 100; end++ {
			units := int64(0)
			for _, a := range all {
				if a.US > end-window && a.US <= end {
					units += a.Cost
				}
			}
			most = max(most, units)
		}
		limit := rapid.Int64Range(0, 60).Draw(t, "L")
		if worst, ok := oracle.Window(all, limit, window); worst.Units != most || ok != (most <= limit) {
			t.Fatalf("%+v %v, the fullest window holds %d of %d", worst, ok, most, limit)
		}
	})
}

func limit(a quota.Algorithm, units, us int64) *quota.Limit {
	return &quota.Limit{Name: "l", Algorithm: a, Units: units, Window: time.Duration(us) * time.Microsecond}
}

func part(name string, l *quota.Limit) oracle.Part {
	return oracle.Part{Name: name, Asks: []oracle.Ask{{Limit: l, Ceiling: l.Capacity()}}}
}

// TestRegionLedger follows each algorithm by hand: 3 units in 1000 µs.
func TestRegionLedger(t *testing.T) {
	type row struct {
		us, cost int64
		want     string
	}
	for algorithm, rows := range map[quota.Algorithm][]row{
		quota.SlidingLog: {
			{5000, 1, "a {2 0 1000}"},
			{5400, 2, "a {0 0 1000}"},
			{5999, 1, "d {0 1 401}"},   // the first leaves at 6000
			{5999, 2, "d {0 401 401}"}, // two of them only with the pair
			{6000, 1, "a {0 0 1000}"},
			{5500, 1, "d {0 900 1500}"},       // a small step back is waited out: the pair leaves at 6400
			{-1_000_000, 1, "d {0 400 1000}"}, // a real one: the clock goes on from 6000
			{-999_600, 1, "a {1 0 1000}"},
		},
		quota.SlidingWindow: {
			{5000, 3, "a {0 0 2000}"},
			{5999, 1, "d {0 335 1001}"}, // 3·(1000−e)/1000 ≤ 2 from e = 334 of the next bucket on
			{6333, 1, "d {0 1 667}"},
			{6334, 1, "a {0 0 1666}"},
		},
		quota.GCRA: {
			{5000, 3, "a {0 0 1000}"},
			{5333, 1, "d {0 1 667}"}, // a third of a unit each 111 µs: 334 for a whole one
			{5334, 1, "a {0 0 1000}"},
			{5334, 3, "d {0 1000 1000}"},
		},
	} {
		r := oracle.NewRegion()
		for _, row := range rows {
			q := oracle.Question{Op: oracle.Check, Cost: row.cost, Parts: []oracle.Part{part("p", limit(algorithm, 3, 1000))}}
			a := r.Decide(row.us, q)
			if got := fmt.Sprintf("%c {%d %d %d}", a.Outcome, a.States[0].Remaining, a.States[0].WaitUS, a.States[0].ResetUS); got != row.want {
				t.Errorf("%v at %d cost %d: %s, want %s", algorithm, row.us, row.cost, got, row.want)
			}
		}
	}
}

// TestWaitsAreLeastTimes asks at every microsecond: nothing fits before the wait
// that was returned is over, and the cost fits when it is.
func TestWaitsAreLeastTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limit(quota.Algorithm(rapid.IntRange(0, 2).Draw(t, "algorithm")), rapid.Int64Range(1, 5).Draw(t, "L"), rapid.Int64Range(1, 60).Draw(t, "W"))
		p := part("p", l)
		r, us := oracle.NewRegion(), int64(1000)
		for range rapid.IntRange(1, 12).Draw(t, "charges") {
			r.Decide(us, oracle.Question{Op: oracle.Check, Cost: rapid.Int64Range(1, l.Units).Draw(t, "cost"), Parts: []oracle.Part{p}})
			us += rapid.Int64Range(-40, 40).Draw(t, "move")
		}
		q := oracle.Question{Op: oracle.Check, Cost: rapid.Int64Range(1, l.Units).Draw(t, "cost"), Parts: []oracle.Part{p}}
		wait := int64(0)
		for wait == 0 { // until it does not fit; the denial is what notes a step of the clock
			wait = r.Decide(us, q).States[0].WaitUS
		}
		q.Op = oracle.Peek
		for d := int64(0); d < wait; d++ {
			if r.Decide(us+d, q).Outcome == oracle.Admitted {
				t.Fatalf("fits after %d of %d µs", d, wait)
			}
		}
		if a := r.Decide(us+wait, q); a.Outcome != oracle.Admitted {
			t.Fatalf("does not fit after %d µs: %v", wait, a)
		}
	})
}

func TestRecords(t *testing.T) {
	r, p := oracle.NewRegion(), part("a:p", limit(quota.SlidingLog, 2, 1000))
	ask := func(us int64, mark string) byte {
		return r.Decide(us, oracle.Question{Op: oracle.Check, Cost: 1, Parts: []oracle.Part{p}, Record: "a:i", Print: mark}).Outcome
	}
	end := int64(7 + oracle.IdempotencyUS)
	got := []byte{ask(7, "x"), ask(8, "x"), ask(9, "y"), ask(end-1, "x"), ask(end, "y"), ask(end+1, "y")}
	r.Forget("a:")
	got = append(got, ask(end+1, "x"))
	if string(got) != "amxmama" {
		t.Errorf("outcomes %s, want amxmama", got)
	}
}
