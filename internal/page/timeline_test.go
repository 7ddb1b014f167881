package page

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// recorded is a Stream whose samples a test takes itself, at times of its own.
type recorded struct {
	*Stream
	t    *testing.T
	next Sample
}

func newRecorded(t *testing.T) *recorded {
	t.Helper()
	r := &recorded{t: t}
	r.Stream = New(func() Sample { return r.next })
	return r
}

func (r *recorded) at(now time.Time) {
	r.t.Helper()
	if err := r.tick(now); err != nil {
		r.t.Fatal(err)
	}
}

// shown is the timeline as the next reader gets it.
func (r *recorded) shown() (h historyEvent, sums map[string][2]int64) {
	r.t.Helper()
	text, err := r.history()
	if err != nil {
		r.t.Fatal(err)
	}
	_, data, _ := strings.Cut(string(text), "data: ")
	if err := json.Unmarshal([]byte(data), &h); err != nil {
		r.t.Fatal(err)
	}
	sums = map[string][2]int64{}
	for _, p := range h.Policies {
		sum := sums[p.Name]
		for i := range p.Allowed {
			sum[0], sum[1] = sum[0]+p.Allowed[i], sum[1]+p.Denied[i]
		}
		sums[p.Name] = sum
	}
	return h, sums
}

// TestClockSetBack: a clock that is set back by an hour moves the timeline with it. No point has more than a
// step has, and the newest is of now.
func TestClockSetBack(t *testing.T) {
	r := newRecorded(t)
	now, allowed := time.Unix(1_700_000_000, 0), int64(0)
	tick := func(by time.Duration) {
		now = now.Add(by)
		allowed++
		r.next.Policies = []Policy{{Name: "p", Allowed: allowed}}
		r.at(now)
	}
	for range 100 {
		tick(Every)
	}
	first, reader, err := r.open()
	if err != nil || len(first) == 0 {
		t.Fatal(err)
	}
	tick(-time.Hour)
	for range 100 {
		tick(Every)
	}
	h, sums := r.shown()
	if sums["p"][0] != allowed {
		t.Errorf("%d are allowed in the timeline, %d were", sums["p"][0], allowed)
	}
	if at := time.UnixMilli(h.StepMS); now.Sub(at) < 0 || now.Sub(at) >= Step {
		t.Errorf("the newest point begins at %v, and it is %v", at.UTC(), now.UTC())
	}
	for i, n := range h.Policies[0].Allowed {
		if n > int64(Step/Every)+2 {
			t.Errorf("point %d of %d has %d, at most %d are in a step", i, len(h.Policies[0].Allowed), n, Step/Every)
		}
	}
	for range reader { // closed: the browser connects again, and gets the timeline as it is now
	}
}

// TestPoliciesComeAndGo: a policy that a reload removes is shown until its points are over, and then makes room. What
// comes back goes on where it ended.
func TestPoliciesComeAndGo(t *testing.T) {
	r := newRecorded(t)
	now := time.Unix(1_700_000_000, 0)
	name := func(generation, i int) string { return fmt.Sprintf("g%d-%d", generation, i) }
	for generation := range 3 {
		r.next.Policies = nil
		for i := range MaxPolicies {
			r.next.Policies = append(r.next.Policies, Policy{Name: name(generation, i), Allowed: 3, Denied: 2})
		}
		r.at(now)
		now = now.Add(Span)
		r.at(now)
		if _, sums := r.shown(); len(sums) < MaxPolicies {
			t.Fatalf("%d policies", len(sums))
		}
	}
	r.next.Policies = []Policy{{Name: name(0, 0), Allowed: 4, Denied: 2}, {Name: "new", Allowed: 7}}
	r.at(now)
	if _, sums := r.shown(); sums["new"] != [2]int64{7, 0} || sums[name(0, 0)] != [2]int64{1, 0} || len(sums) != 2 {
		t.Errorf("the new policy has %d, one that came back %d, of %d", sums["new"], sums[name(0, 0)], len(sums))
	}
}

// TestManyPolicies: those that have no line of their own are added up in one, so that all of them together
// are what callers were answered.
func TestManyPolicies(t *testing.T) {
	r := newRecorded(t)
	now := time.Unix(1_700_000_000, 0)
	for round := range 3 {
		r.next.Policies = nil
		for i := range 200 {
			r.next.Policies = append(r.next.Policies, Policy{Name: fmt.Sprint("p", i), Allowed: int64(round * i), Denied: int64(round), Ratio: float64(i) / 100})
		}
		r.at(now.Add(time.Duration(round) * Step))
	}
	h, sums := r.shown()
	total := [2]int64{}
	for _, sum := range sums {
		total[0], total[1] = total[0]+sum[0], total[1]+sum[1]
	}
	if want := [2]int64{2 * 199 * 200 / 2, 2 * 200}; total != want {
		t.Errorf("%d lines add up to %d, want %d", len(sums), total, want)
	}
	if len(sums) != MaxPolicies+1 {
		t.Fatalf("%d lines", len(sums))
	}
	if over := h.Policies[MaxPolicies].Overshoot[0]; over == nil || math.Abs(*over-0.99) > 1e-9 {
		t.Errorf("the largest overshoot of the others is %v, want 0.99", over)
	}
}
