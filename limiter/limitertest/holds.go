package limitertest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// held is a store in a test of reservations, with a clock that is moved by hand.
type held struct {
	t     failer
	store store.Store
	set   func(us int64)
	us    int64 // after Epoch
}

const holdKeepUS = 600_000_000

// ask has one call decided at a time after Epoch.
func (h *held) ask(q *Question, op store.Op, id, cost, ttl int64) store.Verdict {
	c := q.Call("acme", op, cost, nil)
	c.Hold = store.Hold{ID: id, TTLUS: ttl, KeepUS: holdKeepUS, GoneUS: Epoch + 2*holdKeepUS}
	h.set(Epoch + h.us)
	v, err := DecideOne(h.store, c)
	if err != nil {
		h.t.Fatalf("%c of %d at %d: %v", op, id, h.us, err)
	}
	return v
}

// holdText is a verdict about a reservation as a line of a ledger.
func holdText(q *Question, v *store.Verdict) string {
	text := q.Text(v)
	for i := range q.Limits {
		if len(v.Limits) > 0 {
			text += fmt.Sprintf(" h%d", v.Limits[q.places[i]].Held)
			if g := v.Limits[q.places[i]].Gauge; v.Outcome != store.Replayed && g != (quota.Gauge{}) { // a replay is as old as it is
				text += fmt.Sprintf(" #%d: %d until %d", g.Sequence-Epoch, g.Units, max(0, g.UntilUS-Epoch))
			}
		}
	}
	if r := v.Hold; r != (store.HoldVerdict{}) {
		text += fmt.Sprintf(" {%d until %d held %d charged %d over %d", r.ID, max(0, r.ExpiresUS-Epoch), r.Held, r.Charged, r.Overrun())
		if r.Released {
			text += " released"
		}
		if r.TooMany {
			text += " too many"
		}
		text += "}"
	}
	return text
}

// holdLimits are requests and tokens of one policy, and requests in flight.
func holdLimits() *Question {
	tokens := rule("tokens", quota.SlidingLog, 100, 1000)
	tokens.Counts = quota.CountsTokens
	return Ask(rule("requests", quota.SlidingLog, 5, 1000), tokens, rule("inflight", quota.Concurrent, 2, 1_000_000))
}

// Holds follows reservations by hand: 5 requests and 100 tokens in 1000 µs, 2 in flight.
func Holds(t *testing.T, newStore New) {
	q := holdLimits()
	noFlight := Ask(q.Limits[:2]...)
	type row struct {
		us     int64
		op     store.Op
		id     int64
		cost   int64 // a check's and a report's is of requests and tokens
		ttl    int64
		answer string
	}
	for name, rows := range map[string][]row{
		"settled below what was held": {
			{0, 'h', 7, 60, 5000, "a 4 0 1000 | 40 0 5000 | 1 0 5000 h0 h60 h1 {7 until 5000 held 60 charged 0 over 0}"},
			{10, 'h', 8, 41, 5000, "d 4 0 990 | 40 4990 4990 | 1 0 4990 h0 h60 h1"},
			{10, 'c', 0, 41, 0, "d 4 -1 990 | 40 4990 4990 h0 h60"},
			{10, 'p', 0, 40, 0, "d 4 -1 990 | 40 0 4990 h0 h60"},
			{20, 's', 7, 25, 0, "s 4 0 980 | 75 0 1000 | 2 0 0 h0 h0 h0 {7 until 5000 held 60 charged 25 over 0 released}"},
			{30, 's', 7, 99, 0, "m {7 until 5000 held 60 charged 25 over 0 released}"},
			{40, 'h', 8, 75, 5000, "a 3 0 1000 | 0 0 5000 | 1 0 5000 h0 h75 h1 {8 until 5040 held 75 charged 0 over 0}"},
		},
		"cancelled: the request stays charged": {
			{0, 'h', 7, 100, 5000, "a 4 0 1000 | 0 0 5000 | 1 0 5000 h0 h100 h1 {7 until 5000 held 100 charged 0 over 0}"},
			{10, 's', 7, 0, 0, "s 4 0 990 | 100 0 0 | 2 0 0 h0 h0 h0 {7 until 5000 held 100 charged 0 over 0 released}"},
		},
		"over what was held": {
			{0, 'h', 7, 10, 5000, "a 4 0 1000 | 90 0 5000 | 1 0 5000 h0 h10 h1 {7 until 5000 held 10 charged 0 over 0}"},
			{10, 's', 7, 120, 0, "s 4 0 990 | 0 0 1000 | 2 0 0 h0 h0 h0 {7 until 5000 held 10 charged 120 over 110 released}"},
		},
		"expired": {
			{0, 'h', 7, 60, 5000, "a 4 0 1000 | 40 0 5000 | 1 0 5000 h0 h60 h1 {7 until 5000 held 60 charged 0 over 0}"},
			{4999, 'p', 0, 1, 0, "a 5 0 0 | 40 0 1 h0 h60"},
			{5000, 'p', 0, 1, 0, "a 5 0 0 | 100 0 0 h0 h0"},
			{5001, 's', 7, 30, 0, "s 5 0 0 | 70 0 1000 | 2 0 0 h0 h0 h0 {7 until 5000 held 60 charged 30 over 0}"},
			{5002, 's', 7, 30, 0, "m {7 until 5000 held 60 charged 30 over 0}"},
			{5002, 'e', 7, 0, 9000, "g"},
		},
		"extended": {
			{0, 'h', 7, 60, 5000, "a 4 0 1000 | 40 0 5000 | 1 0 5000 h0 h60 h1 {7 until 5000 held 60 charged 0 over 0}"},
			{4999, 'e', 7, 0, 2000, "a 0 0 0 | 0 0 0 | 0 0 0 h0 h0 h0 {7 until 6999 held 60 charged 0 over 0}"},
			{6998, 'p', 0, 1, 0, "a 5 0 0 | 40 0 1 h0 h60"},
			{6999, 'e', 7, 0, 2000, "g"},
			{6999, 'e', 8, 0, 2000, "g"},
		},
		"the store lost it": {
			{10, 's', 9, 30, 0, "s 5 0 0 | 70 0 1000 | 2 0 0 h0 h0 h0 {9 until 0 held 0 charged 30 over 30}"},
			{11, 's', 9, 31, 0, "m {9 until 0 held 0 charged 30 over 30}"},
			{2*holdKeepUS - 1, 's', 9, 31, 0, "m {9 until 0 held 0 charged 30 over 30}"},
			{2 * holdKeepUS, 's', 9, 31, 0, "g"},
			{2 * holdKeepUS, 's', 10, 31, 0, "g"},
		},
		"two in flight": {
			{0, 'h', 1, 1, 5000, "a 4 0 1000 | 99 0 5000 | 1 0 5000 h0 h1 h1 {1 until 5000 held 1 charged 0 over 0}"},
			{1, 'h', 2, 1, 3000, "a 3 0 1000 | 98 0 4999 | 0 0 4999 h0 h2 h2 {2 until 3001 held 1 charged 0 over 0}"},
			{2, 'h', 3, 1, 3000, "d 3 0 999 | 98 0 4998 | 0 2999 4998 h0 h2 h2"},
			{2, 'h', 1, 1, 3000, "t"},
			{2, 'h', 3, 0, 3000, "d 3 0 999 | 98 0 4998 | 0 2999 4998 h0 h2 h2"},
			{3, 's', 1, 1, 0, "s 3 0 998 | 98 0 2998 | 1 0 2998 h0 h1 h1 {1 until 5000 held 1 charged 1 over 0 released}"},
		},
		"a denial waits for the sooner of units and holds": {
			{0, 'r', 0, 50, 0, "a 0 0 1000 | 50 0 1000 h0 h0"},
			{1000, 'r', 0, 30, 0, "a 0 0 1000 | 70 0 1000 h0 h0"},
			{1100, 'h', 1, 20, 5000, "d 0 900 900 | 70 0 900 | 2 0 0 h0 h0 h0"},
			{2000, 'h', 1, 20, 500, "a 4 0 1000 | 80 0 500 | 1 0 500 h0 h20 h1 {1 until 2500 held 20 charged 0 over 0}"},
			{2001, 'h', 2, 80, 200, "a 3 0 1000 | 0 0 499 | 0 0 499 h0 h100 h2 {2 until 2201 held 80 charged 0 over 0}"},
			{2002, 'h', 3, 81, 200, "d 3 0 999 | 0 498 498 | 0 199 498 h0 h100 h2"},
			{2002, 'h', 3, 80, 200, "d 3 0 999 | 0 199 498 | 0 199 498 h0 h100 h2"},
		},
	} {
		s, now := newStore(t)
		h := &held{t: t, store: s, set: now}
		for _, r := range rows {
			h.us = r.us
			asked := q
			if r.op == store.OpCheck || r.op == store.OpPeek || r.op == store.OpReport {
				asked = noFlight
			}
			v := h.ask(asked, r.op, r.id, r.cost, r.ttl)
			if got := holdText(asked, &v); got != r.answer {
				t.Errorf("%s: at %d %c %d of %d\ngot  %s\nwant %s", name, r.us, r.op, r.id, r.cost, got, r.answer)
			}
		}
	}
}

// Gauges follows by hand what peers have to know of the holds under a global limit of 100 tokens: a number, TIME or one more than
// the last if that is larger, units and the end of the last hold.
func Gauges(t *testing.T, newStore New) {
	tokens := rule("tokens", quota.SlidingLog, 100, 1000)
	tokens.Counts, tokens.Scope = quota.CountsTokens, quota.ScopeGlobal
	q := Ask(tokens, rule("inflight", quota.Concurrent, 9, 1_000_000))
	s, now := newStore(t)
	h, ctx := &held{t: t, store: s, set: now}, context.Background()
	const second = 1_000_000
	for i, r := range []struct {
		us            int64
		op            store.Op
		id, cost, ttl int64
		units, until  int64
		sequence      int64 // after Epoch
		generation    int64
	}{
		{0, 'h', 1, 60, 5 * second, 60, 5 * second, 0, 0},
		{10, 'h', 2, 10, 9 * second, 70, 9*second + 10, 10, 0},
		{11, 'h', 3, 99, 9 * second, 70, 9*second + 10, 10, 0}, // denied
		{12, 'c', 0, 1, 0, 70, 9*second + 10, 10, 0},
		{20, 's', 2, 0, 0, 60, 5 * second, 20, 0}, // cancelled: nothing was charged
		{30, 'e', 1, 0, 7 * second, 60, 7*second + 30, 30, 0},
		{40, 's', 1, 50, 0, 0, 0, 40, 0},
		{50, 'h', 4, 40, second, 40, second + 50, 50, 0},    // the set was gone
		{second + 50, 'p', 0, 1, 0, 40, second + 50, 50, 0}, // a look writes nothing
		{second + 60, 'r', 0, 1, 0, 0, 0, second + 60, 0},   // the first that notices the end
		{second + 70, 'h', 5, 40, second, 40, 2*second + 70, second + 70, 0},
		{-9 * second, 'h', 6, 10, second, 50, -8 * second, second + 71, 0}, // TIME stepped back, and 5 lasts for another second
		{-9*second + 10, 'd', 0, 0, 0, 0, 0, 0, 0},                         // a reset frees the holds
		{-9*second + 20, 'c', 0, 1, 0, 0, 0, second + 72, 1},               //
		{-9*second + 30, 'h', 7, 30, second, 30, -8*second + 30, second + 73, 1},
		{-9*second + 40, 'D', 0, 0, 0, 0, 0, 0, 0}, // of the counter too
		{-9*second + 50, 'h', 8, 20, second, 20, -8*second + 50, -9*second + 50, -9*second + 50},
	} {
		h.us = r.us
		if upTo, resets := map[store.Op]int64{'d': 0, 'D': Epoch + second}[r.op]; resets {
			if err := s.ResetAll(ctx, "acme", upTo); err != nil {
				t.Fatal(err)
			}
			continue
		}
		asked := q
		if !r.op.OfReservation() {
			asked = Ask(tokens)
		}
		v := h.ask(asked, r.op, r.id, r.cost, r.ttl)
		want := quota.Gauge{Sequence: Epoch + r.sequence, Units: r.units}
		if r.until != 0 {
			want.UntilUS = Epoch + r.until
		}
		if l := v.Limits[asked.places[0]]; l.Gauge != want || l.Counter.Generation != Epoch+r.generation {
			t.Fatalf("step %d, %c %d of %d: %+v of generation %d, want %+v of %d", i, r.op, r.id, r.cost, l.Gauge, l.Counter.Generation-Epoch, want, r.generation)
		}
	}
}

// HoldsTooMany fills a partition with holds, of which all are over at once.
func HoldsTooMany(t *testing.T, newStore New) {
	tokens := rule("tokens", quota.SlidingLog, 100_000, 60_000_000)
	tokens.Counts = quota.CountsTokens
	q := Ask(tokens)
	s, now := newStore(t)
	h := &held{t: t, store: s, set: now}
	now(Epoch)
	calls := make([]store.Call, 0, 500)
	for id := int64(1); id <= quota.MaxHolds; id++ {
		c := q.Call("acme", store.OpReserve, 1, nil)
		c.Hold = store.Hold{ID: id, TTLUS: 1000, KeepUS: holdKeepUS}
		if calls = append(calls, c); len(calls) == cap(calls) {
			for i, v := range decide(s, calls...) {
				if v.Outcome != store.Admitted {
					t.Fatalf("hold %d: %+v", calls[i].Hold.ID, v)
				}
			}
			calls = calls[:0]
		}
	}
	if v := h.ask(q, store.OpReserve, 77_777, 1, 1000); v.Outcome != store.Denied || !v.Hold.TooMany || v.Limits[0].WaitUS != 1000 {
		t.Errorf("one more than there may be: %+v", v)
	}
	if v := h.ask(q, store.OpCheck, 0, 1, 0); v.Outcome != store.Admitted || v.Limits[0].Held != quota.MaxHolds {
		t.Errorf("a check beside them: %+v", v)
	}
	h.us = 1000
	for n := int64(1); ; n++ { // at most 64 are removed by each call
		began := time.Now()
		v := h.ask(q, store.OpCheck, 0, 1, 0)
		if left := max(0, quota.MaxHolds-64*n); v.Outcome != store.Admitted || v.Limits[0].Held != left {
			t.Fatalf("check %d, in %v: %+v, want %d held", n, time.Since(began), v, left)
		}
		if v.Limits[0].Held == 0 {
			return
		}
	}
}

// RunHoldPrograms holds a store to the oracle over random programs of checks, reports, reserves, settles and extends, while
// holds end, the clock steps and limits are reloaded. Every verdict must be equal in full.
func RunHoldPrograms(t *testing.T, newStore New) {
	for name, most := range map[string]int64{"few": 6, "many": 1000} {
		t.Run(name, func(t *testing.T) {
			kept, now := newStore(t)
			tenants, outcomes := 0, map[byte]int{}
			rapid.Check(t, func(t *rapid.T) {
				tenants++
				p := newPair(kept, now, fmt.Sprint("t", tenants))
				p.seen = func(v *store.Verdict) { outcomes[v.Outcome]++ }
				holdProgram(t, p, most)
			})
			t.Logf("%d programs: %d admitted, %d denied, %d settled, %d replayed, %d gone, %d taken", tenants,
				outcomes[store.Admitted], outcomes[store.Denied], outcomes[store.Settled], outcomes[store.Replayed], outcomes[store.Gone], outcomes[store.Taken])
			for _, o := range []byte{store.Admitted, store.Denied, store.Settled, store.Replayed, store.Gone, store.Taken} {
				if outcomes[o] < tenants/10 {
					t.Errorf("too few outcomes %c to show anything: %d", o, outcomes[o])
				}
			}
		})
	}
}

// holdProgram reserves up to so many at once.
func holdProgram(t *rapid.T, p *pair, most int64) {
	limits := genHolding(t)
	reload := genReload(t, limits, false)
	asked := []*Question{p.reference.ask(limits...), p.reference.ask(reload...)}
	plain := []*Question{p.reference.ask(rates(limits)...), p.reference.ask(rates(reload)...)}
	ttl := rapid.SampledFrom([]int64{1000, 60_000, 3_000_000}).Draw(t, "ttl")
	ids, at := int64(0), 0
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		if p.us += genMove(t, limits); rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
			p.us += ttl + rapid.Int64Range(-1, 1).Draw(t, "edge")
		}
		if rapid.IntRange(0, 7).Draw(t, "reload") == 0 {
			at = 1 - at
		}
		var calls []store.Call
		for range rapid.IntRange(1, 3).Draw(t, "batch") {
			op := rapid.SampledFrom([]store.Op{'h', 'h', 'h', 's', 's', 'e', 'c', 'p', 'r'}).Draw(t, "op")
			if op == store.OpCheck || op == store.OpPeek || op == store.OpReport {
				calls = append(calls, genCall(t, plain[at], p.tenant))
				continue
			}
			c := genCall(t, asked[at], p.tenant)
			c.Op, c.Hold = op, store.Hold{TTLUS: rapid.SampledFrom([]int64{ttl, ttl, 1, 2 * ttl}).Draw(t, "ttl"), KeepUS: 4 * ttl, GoneUS: p.us + ttl}
			if op != store.OpReserve {
				c.Record, c.Print, c.Hold.ID = "", "", rapid.Int64Range(max(1, ids-8), ids+1).Draw(t, "id")
				if rapid.IntRange(0, 3).Draw(t, "none used") == 0 && op == store.OpSettle {
					c.Cost = 0
				}
				calls = append(calls, c)
				continue
			}
			times := int64(1)
			if rapid.IntRange(0, 3).Draw(t, "rush") == 0 {
				times = rapid.Int64Range(1, min(most, 150)).Draw(t, "times")
			}
			if rapid.IntRange(0, 5).Draw(t, "look") == 0 {
				c.Cost = 0
			}
			if c.Record != "" {
				c.Print = fmt.Sprint("h", c.Cost) // as the limiter's, which is of the op and the cost
			}
			for range times {
				if ids++; rapid.IntRange(0, 9).Draw(t, "taken") == 0 {
					ids = max(1, ids-1)
				}
				c.Hold.ID = ids
				calls = append(calls, c)
			}
		}
		p.compare(t, calls...)
	}
}

// genHolding draws limits of which one at least takes holds.
func genHolding(t *rapid.T) []*quota.Limit {
	limits := genLimits(t)
	for i, l := range limits {
		if i == 0 || rapid.Bool().Draw(t, "tokens") {
			l.Counts = quota.CountsTokens
		}
	}
	if rapid.Bool().Draw(t, "concurrent") {
		limits = append(limits, rule("c", quota.Concurrent, rapid.SampledFrom([]int64{1, 3, 200}).Draw(t, "at once"), 1_000_000))
	}
	return limits
}

// rates are those of limits that checks ask.
func rates(limits []*quota.Limit) []*quota.Limit {
	return slices.DeleteFunc(slices.Clone(limits), func(l *quota.Limit) bool { return l.Algorithm == quota.Concurrent })
}
