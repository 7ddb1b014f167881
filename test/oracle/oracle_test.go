package oracle_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
)

func limit(a quota.Algorithm, units, us int64) *quota.Limit {
	return &quota.Limit{Name: "l", Algorithm: a, Units: units, Window: time.Duration(us) * time.Microsecond}
}

func part(name string, l *quota.Limit) oracle.Part {
	return oracle.Part{Name: name, Asks: []oracle.Ask{{Limit: l, Ceiling: l.Capacity()}}}
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
