package judge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// Each oracle is shown a history that is as it should be, and the same with one thing
// wrong: it must object to the second alone.

const millisecond = time.Millisecond

// wallUS is a clock that shows a second when a history begins.
func wallUS(at time.Duration) int64 { return 1_000_000 + at.Microseconds() }

func nobody(*traffic.Record) bool { return false }

// asked is a request that was answered one millisecond later.
func asked(region, class, tenant string, at time.Duration, cost int64, allowed bool) traffic.Record {
	r := traffic.Record{
		Region: region, Class: class, Tenant: tenant, Cost: cost, Due: at, Call: at, Return: at + millisecond, Status: 429,
		Answer: traffic.Answer{Allowed: allowed, Mode: "global", Basis: "exact"},
	}
	if allowed {
		r.Status = 200
	}
	r.Answer.Explain.StoreTimeUS = wallUS(at) + 500
	return r
}

// shed is a check that was turned away.
func shed(region, class, tenant string, at time.Duration, cost int64) traffic.Record {
	r := asked(region, class, tenant, at, cost, false)
	r.Status, r.Answer.Basis, r.Answer.Reason, r.Answer.Explain.StoreTimeUS = 503, "shed", "overloaded", 0
	r.Answer.RetryAfterMS = 1000
	return r
}

// bites holds an oracle's objections to a good history and to a bad one.
func bites(t *testing.T, good, bad []string, says string) {
	t.Helper()
	if len(good) > 0 {
		t.Errorf("it objects to what is right: %q", good)
	}
	if len(bad) == 0 || !strings.Contains(strings.Join(bad, "\n"), says) {
		t.Errorf("it objects %q, want something with %q", bad, says)
	}
}

func TestAnsweredBites(t *testing.T) {
	r := asked("a", traffic.Quiet, "x", 0, 1, true)
	good := judge.Answered([]traffic.Record{r, asked("a", traffic.Quiet, "x", 0, 1, false), shed("a", traffic.Quiet, "x", 0, 1)}, nobody)
	for name, spoil := range map[string]func(r *traffic.Record){
		"hung":          func(r *traffic.Record) { r.Err = "i/o timeout" },
		"status 503":    func(r *traffic.Record) { r.Status = 503 },
		"allowed false": func(r *traffic.Record) { r.Answer.Allowed = false },
	} {
		bad := r
		spoil(&bad)
		says := map[string]string{"hung": "none within"}[name]
		bites(t, good, judge.Answered([]traffic.Record{bad}, nobody), says)
		if o := judge.Answered([]traffic.Record{bad}, func(*traffic.Record) bool { return true }); len(o) > 0 {
			t.Errorf("%s was excused: %q", name, o)
		}
	}
}

func TestAnsweredBitesOnRefusals(t *testing.T) {
	turnedAway := shed("a", traffic.Quiet, "x", 0, 1)
	good := judge.Answered([]traffic.Record{turnedAway}, nobody)
	turnedAway.Status = 429
	bites(t, good, judge.Answered([]traffic.Record{turnedAway}, nobody), "status 429")
	turnedAway.Status, turnedAway.Answer.RetryAfterMS = 503, 0
	bites(t, good, judge.Answered([]traffic.Record{turnedAway}, nobody), "retry after 0 ms")
}

func TestLabelledBites(t *testing.T) {
	good := asked("a", traffic.Quiet, "x", 0, 1, true)
	local := good
	local.Answer.Mode, local.Answer.Basis, local.Answer.Reason = "local", "local", "redis_down"
	right := judge.Labelled([]traffic.Record{good, local})
	for _, spoil := range []func(r *traffic.Record){
		func(r *traffic.Record) { r.Answer.Reason = "peer_silent" },
		func(r *traffic.Record) { r.Answer.Basis = "local" },
		func(r *traffic.Record) { r.Answer.Mode = "partitioned" },
		func(r *traffic.Record) { r.Answer.Mode = "" },
	} {
		bad := good
		spoil(&bad)
		bites(t, right, judge.Labelled([]traffic.Record{bad}), "labelled: a at 1ms")
	}
	local.Answer.Reason = ""
	bites(t, right, judge.Labelled([]traffic.Record{local}), `reason ""`)
	late := good
	late.Status, late.Answer = 503, traffic.Answer{}
	bites(t, right, judge.Labelled([]traffic.Record{late}), `mode ""`)
	turnedAway := shed("a", traffic.Quiet, "x", 0, 1)
	blind := turnedAway
	blind.Answer.Mode = "partitioned"
	right = judge.Labelled([]traffic.Record{turnedAway, blind})
	for _, spoil := range []func(r *traffic.Record){
		func(r *traffic.Record) { r.Answer.Mode = "local" },
		func(r *traffic.Record) { r.Answer.Reason = "" },
		func(r *traffic.Record) { r.Answer.Reason = "redis_timeout" },
		func(r *traffic.Record) { r.Answer.Allowed = true },
	} {
		bad := turnedAway
		spoil(&bad)
		bites(t, right, judge.Labelled([]traffic.Record{bad}), "basis \"shed\"")
	}
	closed := asked("a", traffic.Strict, "x", 0, 1, false)
	closed.Answer.Mode, closed.Answer.Basis, closed.Answer.Reason = "local", "closed", "redis_down"
	right = judge.Labelled([]traffic.Record{closed})
	for _, spoil := range []func(r *traffic.Record){
		func(r *traffic.Record) { r.Class = traffic.Quiet },
		func(r *traffic.Record) { r.Answer.Basis = "local" },
		func(r *traffic.Record) { r.Answer.Mode = "global" },
		func(r *traffic.Record) { r.Answer.Allowed = true },
	} {
		bad := closed
		spoil(&bad)
		bites(t, right, judge.Labelled([]traffic.Record{bad}), "labelled: a at 1ms")
	}
}

func TestModestBites(t *testing.T) {
	bites(t, judge.Modest([]traffic.Record{asked("a", traffic.Quiet, "x", 0, 1, true), asked("a", traffic.Hot, "y", 0, 1, false)}, nobody),
		judge.Modest([]traffic.Record{asked("a", traffic.Quiet, "x", 0, 1, false)}, nobody), "denies x")
}

func TestPromptBites(t *testing.T) {
	// A thousand answers of a second each; the slowest takes so long.
	history := func(regiond, bare time.Duration) []traffic.Record {
		var all []traffic.Record
		for i := range 2000 {
			r := asked("a", traffic.Ledger, "x", time.Duration(i)*millisecond, 1, true)
			all = append(all, r)
			r.Bare = true
			all = append(all, r)
		}
		all[1000].Return = all[1000].Due + regiond
		all[1001].Return = all[1001].Due + bare
		return all
	}
	bounds := judge.Bounds{Part: 0.999, Late: 50 * millisecond, Max: 60 * millisecond}
	_, good := judge.Prompt(history(80*millisecond, 30*millisecond), nobody, bounds)
	worst, bad := judge.Prompt(history(80*millisecond, millisecond), nobody, bounds)
	bites(t, good, bad, "79ms more")
	if worst.Max != 79*millisecond || worst.Judged != 2 || worst.Starved != 0 {
		t.Errorf("the worst is %+v", worst)
	}
	busy, _ := judge.Prompt(history(200*millisecond, 51*millisecond), nobody, bounds)
	if busy.Judged != 1 || busy.Starved != 1 {
		t.Errorf("of two seconds one was starved: %+v", busy)
	}
	_, bad = judge.Prompt(history(200*millisecond, 51*millisecond)[:2000], nobody, bounds)
	bites(t, nil, bad, "too busy in all of 1 seconds")
	var alone []traffic.Record
	for _, r := range history(millisecond, millisecond) {
		if !r.Bare {
			alone = append(alone, r)
		}
	}
	_, bad = judge.Prompt(alone, nobody, bounds)
	bites(t, nil, bad, "nothing can be compared")
	end := append(history(millisecond, millisecond), asked("a", traffic.Ledger, "x", 2*time.Second, 1, true))
	_, good = judge.Prompt(end, nobody, bounds)
	end[len(end)-1].Return += 70 * millisecond
	_, bad = judge.Prompt(end, nobody, bounds)
	bites(t, good, bad, "second 2")
}

// full is a window that is filled and then asked for once more when a unit has left.
func full(region string, extra time.Duration) []traffic.Record {
	var all []traffic.Record
	for i := range 5 {
		all = append(all, asked(region, traffic.Edge, "x", time.Duration(i)*10*millisecond, 1, true))
	}
	return append(all, asked(region, traffic.Edge, "x", extra, 1, true))
}

func TestWindowBites(t *testing.T) {
	limit := judge.Limit{Units: 5, Window: time.Second}
	early := full("a", 990*millisecond)
	good := judge.Window(full("a", 1010*millisecond), traffic.Edge, limit, nil, false)
	bites(t, good, judge.Window(early, traffic.Edge, limit, nil, false), "admitted 6 units of x")
	bites(t, good, judge.Window(early, traffic.Edge, limit, nil, true), "by the store's clock false")
	lost := []judge.Loss{{Region: "a", Span: judge.Span{From: 400 * millisecond, To: 500 * millisecond}}}
	if o := judge.Window(early, traffic.Edge, limit, lost, false); len(o) > 0 {
		t.Errorf("Redis forgot what came before: %q", o)
	}
	lost[0].Region = "b"
	bites(t, nil, judge.Window(early, traffic.Edge, limit, lost, false), "6 units")
	for i := range early {
		early[i].Answer.Basis = "local"
	}
	bites(t, nil, judge.Window(early, traffic.Edge, limit, nil, false), "local true")
}

func TestWindowCountsOnlyWhatIsCertain(t *testing.T) {
	limit := judge.Limit{Units: 5, Window: time.Second}
	late := full("a", 990*millisecond)
	late[5].Return = 1001 * millisecond // it may have been decided when the first had left
	if o := judge.Window(late, traffic.Edge, limit, nil, true); len(o) > 0 {
		t.Errorf("it may have been right: %q", o)
	}
}

// described fills in the answer of a limit of 5 per second to the last of full.
func described(extra time.Duration, allowed bool, remaining, retryMS int64) []traffic.Record {
	all := full("a", extra)
	for i := range 5 {
		all[i].Answer.Remaining = int64(4 - i)
	}
	all[5].Answer.Allowed = allowed
	all[5].Answer.Remaining, all[5].Answer.RetryAfterMS = remaining, retryMS
	return all
}

func TestLinearBites(t *testing.T) {
	limit := judge.Limit{Units: 5, Window: time.Second}
	check := func(records []traffic.Record) []string {
		_, o := judge.Linear(records, wallUS, traffic.Edge, limit, nil)
		return o
	}
	good := append(check(described(990*millisecond, false, 0, 10)), check(described(1000*millisecond, true, 0, 0))...)
	for _, bad := range [][]traffic.Record{
		described(990*millisecond, true, 0, 0),    // a unit too many
		described(1000*millisecond, false, 0, 10), // there was room
		described(990*millisecond, false, 1, 10),  // nothing remained
		described(990*millisecond, false, 0, 9),   // a millisecond too early
		described(1000*millisecond, true, 1, 0),   // it cost one
		described(2000*millisecond, true, 0, 0),   // four had left
	} {
		bites(t, good, check(bad), "no order explains")
	}
	swapped := described(990*millisecond, false, 0, 10)
	swapped[0].Answer.Remaining, swapped[1].Answer.Remaining = 3, 4 // the second came before the first
	bites(t, good, check(swapped), "no order explains")
	// The same in the order of Redis's clock, too: then it is the clock that is wrong.
	first, second := &swapped[0].Answer.Explain.StoreTimeUS, &swapped[1].Answer.Explain.StoreTimeUS
	*first, *second = *second, *first
	bites(t, good, check(swapped), "decided after one")
	together := described(990*millisecond, false, 0, 10)
	for i := range 2 { // both at once: either may have come first
		together[i].Return = 20 * millisecond
		together[i].Answer.Explain.StoreTimeUS = wallUS(11 * millisecond)
	}
	together[0].Answer.Remaining, together[1].Answer.Remaining = 3, 4
	together[5].Answer.RetryAfterMS = 21
	bites(t, check(together), check(swapped), "")
}

func TestLinearGoesOnWhereItIsKnown(t *testing.T) {
	limit := judge.Limit{Units: 5, Window: time.Second}
	// A call whose outcome is not known, a window and the lag of it, and then five that
	// are known.
	history := func(last int64) []traffic.Record {
		all := []traffic.Record{asked("a", traffic.Edge, "x", 0, 1, true), asked("a", traffic.Edge, "x", 10*millisecond, 5, true)}
		all[0].Answer.Remaining = 4
		all[1].Answer.Basis = "local"
		for i := range 4 { // not checked: nobody knows what was in the window then
			r := asked("a", traffic.Edge, "x", 1500*millisecond+time.Duration(i)*100*millisecond, 1, true)
			r.Answer.Remaining = 99
			all = append(all, r)
		}
		r := asked("a", traffic.Edge, "x", 2650*millisecond, 1, true) // those of 1.7 s and 1.8 s are in the window
		r.Answer.Remaining = last
		return append(all, r)
	}
	check := func(last int64, unsure ...judge.Span) (int, []string) {
		return judge.Linear(history(last), wallUS, traffic.Edge, limit, unsure)
	}
	n, good := check(2)
	if n != 2 {
		t.Errorf("%d calls were checked, want the first and the last", n)
	}
	_, bad := check(3)
	bites(t, good, bad, "from 2.65s on")
	if n, o := check(3, judge.Span{From: 0, To: 3 * time.Second}); n != 0 || len(o) > 0 {
		t.Errorf("%d calls were checked in an unknown span: %q", n, o)
	}
}

// spent are admissions of two regions under a common limit of 10 per second: some
// by the first at the beginning, and some by the second at a time.
func spent(first, second int, at time.Duration) []traffic.Record {
	var all []traffic.Record
	for i := range first {
		all = append(all, asked("a", traffic.Hot, "x", time.Duration(i)*millisecond/10, 1, true))
	}
	for i := range second {
		all = append(all, asked("b", traffic.Hot, "x", at+time.Duration(i)*millisecond/10, 1, true))
	}
	return all
}

func common() judge.Common {
	return judge.Common{
		Limit: judge.Limit{Units: 10, Window: time.Second}, Regions: []string{"a", "b"}, Late: 100 * millisecond,
	}
}

func TestGlobalBites(t *testing.T) {
	judged := func(c judge.Common, records []traffic.Record) []string {
		_, o := judge.Global(records, wallUS, traffic.Hot, c)
		return o
	}
	exact := judged(common(), spent(8, 2, 300*millisecond))
	unheard := judged(common(), spent(8, 8, 50*millisecond)) // none could know yet
	bad := spent(8, 3, 300*millisecond)
	bites(t, append(exact, unheard...), judged(common(), bad), "makes it 11")

	memory := spent(8, 3, 300*millisecond)
	for i := range 8 {
		memory[i].Answer.Basis = "local" // not of its own region's store
	}
	bites(t, exact, judged(common(), memory), "makes it 11")
	// What is used late in one bucket counts whole late in the next.
	next := spent(8, 3, 900*millisecond)
	for i := range next {
		r := &next[i]
		r.Call, r.Return = r.Call+700*millisecond, r.Return+700*millisecond
		r.Answer.Explain.StoreTimeUS += 700_000
	}
	bites(t, exact, judged(common(), next), "makes it 11")

	dark := common()
	dark.Dark = []judge.Span{{From: 0, To: 400 * millisecond}}
	lost := common()
	lost.Losses = []judge.Loss{{Region: "a", Span: judge.Span{From: 200 * millisecond, To: 200 * millisecond}}}
	bites(t, append(judged(dark, bad), judged(lost, bad)...), judged(common(), bad), "11")
	dark.Dark[0] = judge.Span{From: 100 * millisecond, To: 200 * millisecond}
	bites(t, nil, judged(dark, bad), "0 could not be known")
	lost.Losses[0] = judge.Loss{Region: "b", Span: judge.Span{From: 200 * millisecond, To: 200 * millisecond}}
	bites(t, nil, judged(lost, bad), "0 could not be known")

	cut := common() // a has one more than its share, which b cannot know yet
	cut.Cuts, cut.Again = []judge.Cut{{Regions: []string{"a"}, Units: 7}}, time.Second
	healed := cut
	healed.Again = 200 * millisecond
	bites(t, judged(cut, bad), judged(healed, bad), "0 could not be known")
	cut.Cuts[0].Units = 8
	bites(t, nil, judged(cut, bad), "0 could not be known")
}

func TestShareBites(t *testing.T) {
	cut := judge.Cut{Regions: []string{"b"}, Units: 5, Span: judge.Span{From: 100 * millisecond, To: time.Second}}
	judged := func(cut judge.Cut, records []traffic.Record) []string {
		return judge.Share(records, wallUS, traffic.Hot, common(), []judge.Cut{cut})
	}
	good := judged(cut, spent(9, 5, 300*millisecond))
	good = append(good, judged(cut, spent(9, 9, 50*millisecond))...) // before it could be noticed
	bites(t, good, judged(cut, spent(0, 6, 300*millisecond)), "have admitted 6")
	both := cut
	both.Regions, both.Units = []string{"a", "b"}, 10
	bites(t, judged(both, spent(8, 2, 300*millisecond)), judged(both, spent(8, 3, 300*millisecond)), "have admitted 11")
}

func TestChargedBites(t *testing.T) {
	records := []traffic.Record{
		asked("a", traffic.Ledger, "x", 0, 3, true),
		asked("a", traffic.Ledger, "x", 0, 2, false),
		asked("b", traffic.Ledger, "x", 0, 9, true),
	}
	charged := func(units int64) []string {
		return judge.Charged(records, traffic.Ledger, "a", map[string]int64{"x": units}, false)
	}
	good := charged(3)
	bites(t, good, charged(6), "holds 6 units of x: 3 were admitted")
	bites(t, good, charged(5), "holds 5") // the denial was charged
	bites(t, good, charged(2), "holds 2")
	bites(t, good, judge.Charged(records, traffic.Ledger, "a", nil, false), "holds 0")
	records = append(records, shed("a", traffic.Ledger, "x", 0, 7))
	bites(t, charged(3), charged(10), "holds 10 units of x: 3 were admitted, 0 are unknown")
	late := asked("a", traffic.Ledger, "x", 0, 4, true)
	late.Answer.Basis, late.Answer.Reason = "local", "redis_timeout"
	records = append(records, late)
	bites(t, append(charged(3), charged(7)...), charged(11), "4 are unknown")
	records[len(records)-1].Answer.Reason = "redis_refused" // a reply that is another call's refuses nothing
	bites(t, judge.Charged(records, traffic.Ledger, "a", map[string]int64{"x": 7}, true), charged(7), "0 are unknown")
}

// crowded is half a second in which a region decides what comes alone and one of six in
// batches.
func crowded() []traffic.Record {
	var all []traffic.Record
	for i := range 500 {
		at := time.Duration(i) * millisecond
		all = append(all, asked("a", traffic.Ledger, "y", at, 1, true))
		for k := range 60 {
			r := shed("a", traffic.Ledger, "x", at, 1)
			if k%10 == 0 {
				r = asked("a", traffic.Ledger, "x", at, 1, true)
			}
			r.Batch = true
			all = append(all, r)
		}
	}
	return all
}

func TestOverloadedBites(t *testing.T) {
	overload := judge.Overload{Region: "a", Times: 5, Span: judge.Span{From: 0, To: time.Second}, Full: 0}
	judged := func(v judge.Overload, spoil func(all []traffic.Record) []traffic.Record) []string {
		_, o := judge.Overloaded(spoil(crowded()), nobody, v)
		return o
	}
	asIs := func(all []traffic.Record) []traffic.Record { return all }
	good := judged(overload, asIs)
	basis := func(basis string) func(all []traffic.Record) []traffic.Record {
		return func(all []traffic.Record) []traffic.Record {
			all[70].Answer.Basis = basis
			return all
		}
	}
	for _, wrong := range []string{"local", "open", "closed"} {
		bites(t, good, judged(overload, basis(wrong)), "by basis "+wrong)
	}
	away := overload
	away.Away = []judge.Span{{From: 0, To: 10 * millisecond}}
	bites(t, judged(away, basis("local")), judged(overload, basis("local")), "busy, not away")
	bites(t, good, judged(judge.Overload{}, asIs), "little to do")
	early := overload
	early.From, early.Full = 100*millisecond, 100*millisecond
	bites(t, good, judged(early, asIs), "little to do")
	alone := func(shed int) []string { // of 2,000
		all := judge.Singles{Asked: 1000, Decided: 1000}
		all.Add(judge.Singles{Asked: 1000, Decided: 1000 - shed})
		return all.Judge()
	}
	bites(t, alone(20), alone(21), "come one by one")
	if rates, _ := judge.Overloaded(crowded(), nobody, overload); rates.Singles.Asked == 0 || rates.Singles.Decided != rates.Singles.Asked {
		t.Errorf("%+v", rates)
	}
	more := overload
	more.Times = 11
	bites(t, good, judged(more, asIs), "not 11 times too many")
	for _, v := range []judge.Overload{overload, more} {
		if rates, _ := judge.Overloaded(crowded(), nobody, v); rates.Short != (v.Times == more.Times) {
			t.Errorf("%v times: %+v", v.Times, rates)
		}
	}
	// A machine that stalls makes a busy Redis look dead.
	stalled := func(all []traffic.Record) []traffic.Record {
		r := asked("a", "", "", 0, 1, true)
		r.Bare, r.Return = true, 21*millisecond
		return append(basis("local")(all), r)
	}
	bites(t, judged(overload, stalled), judged(overload, basis("local")), "busy, not away")
	if rates, _ := judge.Overloaded(stalled(crowded()), nobody, overload); rates.Judged != 0 || rates.Stalled != 1 || rates.Local != 1 {
		t.Errorf("%+v", rates)
	}
}

func TestSwitchedBites(t *testing.T) {
	during := judge.Span{From: 0, To: time.Second}
	switched := func(limits ...int64) []string {
		var all []traffic.Record
		for i, limit := range limits {
			r := asked("a", traffic.Ledger, "x", time.Duration(i/2)*10*millisecond, 1, true)
			r.Answer.Limit, r.Batch = limit, true // in batches of two
			all = append(all, r)
		}
		return judge.Switched(all, traffic.Ledger, 5, 7, during)
	}
	good := switched(5, 5, 7, 7, 7, 7)
	bites(t, good, switched(5, 5, 7, 7, 5, 5), "limit of 5 to x at 20ms, 7 was")
	bites(t, good, switched(5, 5, 5, 7, 7, 7), "to one batch")
	bites(t, good, switched(5, 5, 6, 6, 7, 7), "limit of 6")
	bites(t, good, switched(5, 5, 5, 5, 5, 5), "never applies")
}
