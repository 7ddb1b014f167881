package limitertest

import (
	"cmp"
	"slices"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// reloadProgram is a program under limits that change between steps, and within a
// call while a reload has reached some processes and not all. Often nothing is
// admitted after a reload but only denied, since a denial changes nothing that is kept.
func reloadProgram(t *rapid.T, p *pair) {
	limits := genLimits(t)
	questions := []*Question{p.reference.ask(limits...)}
	for range rapid.IntRange(1, 2).Draw(t, "reloads") {
		questions = append(questions, p.reference.ask(genReload(t, limits, false)...))
	}
	at := 0
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		if rapid.IntRange(0, 3).Draw(t, "reload") == 0 {
			at = rapid.IntRange(0, len(questions)-1).Draw(t, "to")
		}
		p.us += genMove(t, questions[at].Limits)
		var calls []store.Call
		for range rapid.IntRange(1, 3).Draw(t, "batch") {
			q := questions[at]
			if rapid.IntRange(0, 7).Draw(t, "behind") == 0 {
				q = rapid.SampledFrom(questions).Draw(t, "process")
			}
			calls = append(calls, genCall(t, q, p.tenant))
		}
		p.compare(t, calls...)
	}
}

// genReload changes windows, units, bursts and zone data of limits. Window and units of a log change only
// if raise is set: what it still holds of a time when they were lower is up to the store. Zone data change only if it is not:
// how long to wait is not known when others come.
func genReload(t *rapid.T, limits []*quota.Limit, raise bool) []*quota.Limit {
	changed := make([]*quota.Limit, len(limits))
	for i, l := range limits {
		c, other := *l, genLimits(t)[0]
		if l.Calendar != nil && !raise { // other zone data
			c.Calendar = calendarLimit("", 1, l.Calendar.Unit.String(), rapid.Int64Range(-4000, 4000).Draw(t, "offset")).Calendar
		}
		if l.Calendar != nil {
			other.Window = l.Window
		}
		if rapid.Bool().Draw(t, "other W") && (raise || l.Algorithm != quota.SlidingLog) {
			c.Window = other.Window
		}
		if rapid.Bool().Draw(t, "other L") && (raise || l.Algorithm != quota.SlidingLog) {
			c.Units = other.Units
		}
		if l.Algorithm == quota.GCRA && rapid.Bool().Draw(t, "other burst") {
			c.Burst = other.Units
		}
		if len(c.Validate()) > 0 {
			c = *l
		}
		changed[i] = &c
	}
	return changed
}

// loweredProgram has up to three sets of logs in force by turns, or at once in several
// processes: one set is lowered to another and that is undone. While a set was charged within two of
// its windows, everything is still known that its limits need.
func loweredProgram(t *rapid.T, p *pair) {
	limits := plainLogs(genLimits(t))
	questions := []*Question{p.reference.ask(limits...)}
	for range rapid.IntRange(1, 2).Draw(t, "reloads") {
		questions = append(questions, p.reference.ask(plainLogs(genReload(t, limits, true))...))
	}
	// The first charges come in order of their units: a log keeps nothing for limits that it has not met yet.
	slices.SortFunc(questions, func(a, b *Question) int { return cmp.Compare(largest(b.Limits), largest(a.Limits)) })
	on := int64(0) // how far time went on in all: no partition's clock went further
	charged := make([]int64, len(questions))
	var calls []store.Call
	for _, q := range questions {
		calls = append(calls, q.Call(p.tenant, store.OpReport, 1, nil))
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		if len(calls) > 0 {
			p.compare(t, calls...)
		}
		move := genMove(t, limits)
		on, calls = on+max(0, move), nil
		p.us += move
		for range rapid.IntRange(1, 3).Draw(t, "batch") {
			at := rapid.IntRange(0, len(questions)-1).Draw(t, "process")
			if q := questions[at]; on < charged[at]+2*longest(q.Limits) {
				calls = append(calls, genCall(t, q, p.tenant))
				if c := &calls[len(calls)-1]; c.Op == store.OpReport && c.Record == "" {
					charged[at] = on
				}
			}
		}
	}
}

// waitProgram spends something, reloads, is denied, and waits as long as the answer says,
// with no other traffic: the check is denied a microsecond before that and admitted then,
// however often it is asked meanwhile. What was spent before the reload is gone from a log
// after one of the new windows and from buckets after two.
func waitProgram(t *rapid.T, p *pair) {
	limits := genLimits(t)
	q := Ask(limits...)
	call := func(op store.Op) store.Call {
		least := quota.MaxUnits
		for _, l := range q.Limits {
			least = min(least, l.Capacity())
		}
		cost := rapid.OneOf(rapid.Just(int64(1)), rapid.Just(least), rapid.Int64Range(1, least)).Draw(t, "cost")
		return q.Call(p.tenant, op, cost, nil)
	}
	decideNow := func(c store.Call) store.Verdict {
		p.now()
		return decide(p.store, c)[0]
	}
	for range rapid.IntRange(1, 10).Draw(t, "charges") {
		decideNow(call(rapid.SampledFrom([]store.Op{store.OpCheck, store.OpReport}).Draw(t, "op")))
		move := genMove(t, q.Limits)
		if slices.ContainsFunc(limits, func(l *quota.Limit) bool { return l.Calendar != nil }) {
			move = max(0, move) // else a period that has less left comes again
		}
		p.us += move
	}
	q = Ask(genReload(t, limits, true)...)
	c := call(store.OpCheck)
	v := decideNow(c)
	if v.Outcome != store.Denied {
		return
	}
	due := p.us
	for i, l := range q.Limits {
		got := v.Limits[q.places[i]]
		due = max(due, p.us+got.WaitUS)
		// A clock that is less than a second behind is waited for.
		if bound := [...]int64{quota.SlidingLog: 1, quota.SlidingWindow: 2}; int(l.Algorithm) < len(bound) && got.ResetUS >= bound[l.Algorithm]*l.WindowUS()+1_000_000 {
			t.Fatalf("limit %s is empty again after %d µs, its window is %d", l.Name, got.ResetUS, l.WindowUS())
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "early") {
		p.us = rapid.Int64Range(p.us, due-1).Draw(t, "asked at")
		if v := decideNow(c); v.Outcome != store.Denied {
			t.Fatalf("admitted %d µs before its time", due-p.us)
		}
	}
	p.us = due - 1
	if v := decideNow(c); v.Outcome != store.Denied {
		t.Fatalf("admitted a microsecond before its time")
	}
	p.us = due
	if v := decideNow(c); v.Outcome != store.Admitted {
		t.Fatalf("waited as long as it should and got %s", q.Text(&v))
	}
}

func longest(limits []*quota.Limit) int64 {
	w := int64(0)
	for _, l := range limits {
		w = max(w, l.WindowUS())
	}
	return w
}

func largest(limits []*quota.Limit) int64 {
	units := int64(0)
	for _, l := range limits {
		units = max(units, l.Units)
	}
	return units
}
