package limitertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// holdKeepUS is how long ledgers keep the record of a reservation.
const holdKeepUS = 600_000_000

// HoldsTooMany fills a partition with holds, of which all are over at once.
func HoldsTooMany(t *testing.T, newStore New) {
	tokens := rule("tokens", quota.SlidingLog, 100_000, 60_000_000)
	tokens.Counts = quota.CountsTokens
	q := Ask(tokens)
	s, now := newStore(t)
	now(Epoch)
	ask := func(op store.Op) store.Verdict {
		t.Helper()
		c := q.Call("acme", op, 1, nil)
		if op == store.OpReserve {
			c.Hold = store.Hold{ID: 77_777, TTLUS: 1000, KeepUS: holdKeepUS}
		}
		v, err := DecideOne(s, c)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
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
	if v := ask(store.OpReserve); v.Outcome != store.Denied || !v.Hold.TooMany || v.Limits[0].WaitUS != 1000 {
		t.Errorf("one more than there may be: %+v", v)
	}
	if v := ask(store.OpCheck); v.Outcome != store.Admitted || v.Limits[0].Held != quota.MaxHolds {
		t.Errorf("a check beside them: %+v", v)
	}
	now(Epoch + 1000)
	for n := int64(1); ; n++ { // at most 64 are removed by each call
		began := time.Now()
		v := ask(store.OpCheck)
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
