package limitertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// RunBounds has three regions, each with a store of its own, check and lend at random under one bound, and holds that
// in every window of true time they admit no more than it. Messages come late, twice, in any order or not at all;
// clocks are apart, drift and step; stores lose all that they hold; shares change, and windows become shorter.
func RunBounds(t *testing.T, newStore New) {
	var regions [3]bounded
	w, past := &bounds{us: Epoch}, int64(0) // of the worlds before
	for i := range regions {
		r := &regions[i]
		r.seen, _ = clock.New(clock.Options{Now: func() time.Duration { return time.Duration(past+w.us-Epoch) * time.Microsecond }})
		r.store, r.now = newStore(t)
		r.store = Watched{r.store, r.seen}
	}
	worlds, admitted, lent := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		worlds, past = worlds+1, past+w.us-Epoch
		for i := range regions {
			regions[i].epoch = uint32(1000 * worlds)
		}
		w = newBounds(t, regions, fmt.Sprint("t", worlds))
		for range rapid.IntRange(150, 400).Draw(t, "steps") {
			w.step(t)
		}
		admitted, lent = admitted+len(w.admitted), lent+w.lent
	})
	t.Logf("%d worlds, %d units admitted, %d lent", worlds, admitted, lent)
	if admitted < 20*worlds || lent < 2*worlds {
		t.Error("too little was admitted or lent to show anything")
	}
}

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

// bounded is a region: its store, its clock, and what its processes know.
type bounded struct {
	store         store.Store
	now           func(us int64)
	seen          *clock.Clock
	question      *Question // what its file says of the limit
	terms         loan.Terms
	name, tenant  string
	offset, drift int64 // µs, millionths
	share         int64
	epoch         uint32
	burnt         int64       // until when its share is, 0 for never
	since         int64       // when the epoch began
	notices       int64       // when a step of the clock is noticed, 0 for none
	ahead         bool        // it was one forward
	raises        []raise     // of the share, still to come
	held          []loan.Loan // as last read
}

type raise struct{ at, units int64 }

// bounds is the world.
type bounds struct {
	regions  []*bounded
	files    [2]*Question // of the window that is judged, and of one that regions may begin with
	terms    loan.Terms   // of the former
	longest  loan.Terms   // that any region goes by
	limit    int64
	us       int64 // true time
	admitted []int64
	messages []func(t *rapid.T) // what happens when it arrives
	losses   int
	lent     int
}

func newBounds(t *rapid.T, regions [3]bounded, tenant string) *bounds {
	const units = 7
	w := &bounds{limit: units, us: Epoch}
	for i, window := range []time.Duration{time.Second, 20 * time.Second} {
		w.files[i] = Ask(&quota.Limit{Name: "g", Units: units, Window: window, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict})
	}
	w.terms = loan.TermsOf(w.files[0].Limits[0].WindowUS())
	file := w.files[rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "file")]
	w.longest = loan.TermsOf(file.Limits[0].WindowUS())
	for i := range regions {
		r := &regions[i]
		r.restart(file)
		r.name, r.tenant, r.burnt, r.raises, r.held, r.share = fmt.Sprint("r", i), tenant, 0, nil, nil, []int64{2, 3, 2}[i]
		r.offset = rapid.Int64Range(0, 3_600_000_000).Draw(t, "offset")
		r.drift = rapid.Int64Range(-quota.RatePPM, quota.RatePPM).Draw(t, "drift")
		w.regions = append(w.regions, r)
	}
	return w
}

// restart has a region go by a file.
func (r *bounded) restart(file *Question) {
	r.question, r.terms, r.epoch = file, loan.TermsOf(file.Limits[0].WindowUS()), r.epoch+1
}

// noticed has a step of a region's clock begin another epoch. One forward burns its share.
func (r *bounded) noticed(w *bounds) {
	if r.since = w.clock(r); r.ahead {
		r.burnt = r.since + w.longest.Keep()
	}
	r.epoch, r.notices, r.ahead = r.epoch+1, 0, false
}

func (w *bounds) clock(r *bounded) int64 {
	passed := w.us - Epoch
	return Epoch + passed + passed*r.drift/1_000_000 + r.offset
}

// ask has a region's store decide a call.
func (w *bounds) ask(t *rapid.T, r *bounded, op store.Op, cost int64, ops ...store.LoanOp) store.Verdict {
	for len(r.raises) > 0 && r.raises[0].at <= w.us {
		r.share, r.raises = r.share+r.raises[0].units, r.raises[1:]
	}
	if r.notices > 0 && r.notices <= w.us {
		r.noticed(w)
	}
	if r.notices == 0 {
		if _, err := r.seen.Observe(r.seen.Now(), w.clock(r)); err != nil {
			t.Fatal(err)
		}
		r.seen.Watch(r.epoch)
	}
	c := r.question.Call(r.tenant, op, cost, nil)
	c.Bounds, c.Loans = []quota.Bound{{Share: r.share, Epoch: r.epoch, BurntUntilUS: r.burnt, SinceUS: r.since}}, ops
	r.now(w.clock(r))
	v, err := DecideOne(r.store, c)
	switch {
	case op == store.OpLoans && err != nil && r.notices > 0:
		v.Loans = &store.Loans{Results: make([]store.LoanResult, len(ops))}
	case err != nil:
		t.Fatal(err)
	case v.Loans != nil:
		r.held = v.Loans.State.Held
	}
	return v
}

func (w *bounds) send(m func(t *rapid.T)) { w.messages = append(w.messages, m) }

func (w *bounds) step(t *rapid.T) {
	r := rapid.SampledFrom(w.regions).Draw(t, "region")
	switch rapid.SampledFrom([]string{
		"check", "check", "check", "check", "check", "check", "want", "want", "want", "arrive", "arrive", "arrive", "arrive",
		"return", "wait", "wait", "wait", "far", "rare",
	}).Draw(t, "step") {
	case "check":
		for range rapid.IntRange(1, 4).Draw(t, "times") {
			w.check(t, r, rapid.SampledFrom([]int64{1, 1, 2, 3}).Draw(t, "cost"))
		}
	case "want":
		w.want(t, r)
	case "arrive":
		w.arrive(t)
	case "return":
		w.giveBack(t, r)
	case "wait":
		w.us += rapid.OneOf(rapid.Int64Range(0, 100_000), rapid.Int64Range(0, w.terms.Window)).Draw(t, "µs")
	case "far":
		w.us += rapid.SampledFrom([]int64{w.terms.Length, w.terms.Window, w.terms.Keep(), w.longest.Length}).Draw(t, "µs")
	case "rare":
		if rapid.IntRange(0, 2).Draw(t, "seldom") == 0 {
			w.rare(t, r)
		}
	}
}

func (w *bounds) check(t *rapid.T, r *bounded, cost int64) {
	if v := w.ask(t, r, store.OpCheck, cost); v.Outcome != store.Admitted {
		return
	}
	w.admitted = append(w.admitted, slices.Repeat([]int64{w.us}, int(cost))...)
	least := w.us - w.terms.Window + w.terms.Window*quota.RatePPM/1_000_000
	used := int64(0)
	for _, at := range w.admitted {
		if at > least {
			used++
		}
	}
	if used > w.limit {
		t.Fatalf("%s admits %d at %d, which makes %d of %d in one window", r.name, cost, w.us-Epoch, used, w.limit)
	}
}

// want asks another region for units, and for more time.
func (w *bounds) want(t *rapid.T, r *bounded) {
	lender := rapid.SampledFrom(w.regions).Draw(t, "lender")
	if lender == r {
		return
	}
	request, units := loan.Request{From: r.name, Epoch: r.epoch, Time: w.clock(r)}, rapid.Int64Range(0, 4).Draw(t, "units")
	if i := slices.IndexFunc(r.held, func(l loan.Loan) bool { return l.Peer == lender.name }); i >= 0 {
		request.ID = r.held[i].ID
	}
	file := r.question
	w.send(func(t *rapid.T) {
		if lender.question != file { // the partition has another name there
			return
		}
		v := w.ask(t, lender, store.OpLoans, 0, store.LoanOp{Kind: store.LoanLend, Units: units, Request: request})
		g := v.Loans.Results[0].Grant
		if g.Units == 0 {
			return
		}
		g.From = lender.name
		w.lent++
		w.send(func(t *rapid.T) { w.ask(t, r, store.OpLoans, 0, store.LoanOp{Kind: store.LoanAccept, Grant: g}) })
	})
}

func (w *bounds) giveBack(t *rapid.T, r *bounded) {
	for _, h := range r.held {
		o := store.LoanOp{Kind: store.LoanReturn, Units: rapid.Int64Range(1, w.limit).Draw(t, "units"), Peer: h.Peer, ID: h.ID}
		w.sendBack(r, h, w.ask(t, r, store.OpLoans, 0, o).Loans.Results[0].Back)
	}
}

func (w *bounds) sendBack(r *bounded, h loan.Loan, back int64) {
	lender := w.regions[slices.IndexFunc(w.regions, func(o *bounded) bool { return o.name == h.Peer })]
	w.send(func(t *rapid.T) {
		w.ask(t, lender, store.OpLoans, 0, store.LoanOp{Kind: store.LoanReturned, Units: back, Peer: r.name, ID: h.ID})
	})
}

// arrive delivers any message; it may come again.
func (w *bounds) arrive(t *rapid.T) {
	if len(w.messages) == 0 {
		return
	}
	i := rapid.IntRange(max(0, len(w.messages)-6), len(w.messages)-1).Draw(t, "message")
	m := w.messages[i]
	if rapid.IntRange(0, 4).Draw(t, "again") > 0 {
		w.messages = slices.Delete(w.messages, i, i+1)
	}
	m(t)
}

// rare is what happens to a store, its clock or the topology. A loss and a step forward burn the region's share for as
// long as what came before can matter.
func (w *bounds) rare(t *rapid.T, r *bounded) {
	switch rapid.SampledFrom([]string{"lose", "step", "back", "back", "ahead", "ahead", "shares", "per"}).Draw(t, "rare") {
	case "lose":
		w.losses++
		r.tenant, r.held = fmt.Sprint(w.regions[0].tenant, "-", w.losses), nil // under keys that hold nothing
		r.noticed(w)
		r.burnt = r.since + w.longest.Keep()
	case "step":
		by := rapid.Int64Range(-2*w.terms.Window, 2*w.terms.Window).Draw(t, "by")
		r.offset, r.ahead = r.offset+by, r.ahead || by > 0 // one forward may wait to be noticed, too
		r.noticed(w)
	case "back":
		w.stepBack(t, r)
	case "ahead":
		w.stepAhead(t, r)
	case "per":
		w.shorten(t, r)
	case "shares":
		if to := rapid.SampledFrom(w.regions).Draw(t, "to"); to != r && r.share > 0 {
			r.share--
			fastest := w.longest.Keep() * 1_000_000 / (1_000_000 + quota.RatePPM)
			to.raises = append(to.raises, raise{w.us + fastest, 1})
		}
	}
}

// shorten gives a region the file with the shorter window, after it has lent under the longer one. Then all use what
// they have at once, as soon as loans of the shorter window would be over.
func (w *bounds) shorten(t *rapid.T, r *bounded) {
	if r.question == w.files[0] {
		return
	}
	w.borrow(t)
	r.restart(w.files[0])
	w.ask(t, r, store.OpPeek, 1)
	w.us += w.terms.Keep() + 10_000
	for _, o := range w.regions {
		w.spend(t, o)
	}
}

// stepBack has a region's clock step back just before a loan ends. It is noticed a second later; until then the region
// uses what it can, and the others do when their records are over.
func (w *bounds) stepBack(t *rapid.T, r *bounded) {
	w.borrow(t)
	if len(r.held) == 0 {
		return
	}
	w.us += max(0, r.held[0].Until-w.clock(r)-rapid.Int64Range(1, 200_000).Draw(t, "left"))
	w.ask(t, r, store.OpPeek, 1)
	r.offset -= rapid.Int64Range(200_000, 1_500_000).Draw(t, "by")
	r.notices = w.us + 1_000_000
	w.us += rapid.Int64Range(100_000, 999_000).Draw(t, "µs")
	w.spend(t, r)
	w.us += r.terms.Window - 10_000
	for _, o := range w.regions {
		w.spend(t, o)
	}
}

// stepAhead has a region's clock step forward just after the region has used what it has, so that this seems to have aged.
// It is noticed a second later; until then the region uses, lends and returns what it can.
func (w *bounds) stepAhead(t *rapid.T, r *bounded) {
	w.borrow(t)
	w.spend(t, r)
	r.offset += rapid.Int64Range(200_000, w.longest.Keep()).Draw(t, "by")
	r.notices, r.ahead = w.us+1_000_000, true
	w.us += rapid.Int64Range(1_000, 999_000).Draw(t, "µs")
	switch rapid.SampledFrom([]string{"spend", "lend", "return"}).Draw(t, "then") {
	case "spend":
		w.spend(t, r)
	case "lend":
		for _, o := range w.regions {
			w.want(t, o)
		}
	case "return":
		w.giveBack(t, r)
	}
	for range rapid.IntRange(3, 6).Draw(t, "messages") {
		w.arrive(t)
	}
	for _, o := range w.regions {
		w.spend(t, o)
	}
}

// borrow has regions lend to each other when all that was used and lent before is over.
func (w *bounds) borrow(t *rapid.T) {
	w.us += w.longest.Window + w.longest.Length
	for range 2 {
		for _, o := range w.regions {
			w.want(t, o)
		}
	}
	for range rapid.IntRange(3, 12).Draw(t, "messages") {
		w.arrive(t)
	}
}

// spend has a region admit all that it can.
func (w *bounds) spend(t *rapid.T, r *bounded) {
	for range w.limit {
		w.check(t, r, 1)
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
