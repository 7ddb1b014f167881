package limitertest

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// BoundOfPeriods holds the share of a region in a period of a calendar to be that, and nothing while it is burnt. The period
// that counts decides whether it is: a clock that is set back over its beginning finds the one before burnt still.
func BoundOfPeriods(t *testing.T, newStore New) {
	s, now := newStore(t)
	limit := boundedCalendar(10)
	hour := limit.Calendar.At(Epoch)
	q := Ask(limit)
	bound := quota.Bound{Share: 4, Epoch: 7, BurntThrough: hour.Number, BurntUntilUS: hour.End, SinceUS: Epoch}
	for _, row := range []struct {
		what    string
		op      store.Op
		us      int64
		bound   quota.Bound
		cost    int64
		outcome byte
		bounded int64
	}{
		{"nothing is burnt", store.OpCheck, Epoch, quota.Bound{Share: 4, Epoch: 7}, 4, store.Admitted, 4},
		{"the share is used", store.OpCheck, Epoch, quota.Bound{Share: 4, Epoch: 7}, 1, store.Denied, 4},
		{"the share has become larger", store.OpCheck, Epoch, quota.Bound{Share: 5, Epoch: 7}, 1, store.Admitted, 5},
		{"burnt", store.OpCheck, Epoch, bound, 1, store.Denied, 0},
		{"what is reported counts all the same", store.OpReport, Epoch, bound, 2, store.Admitted, 0},
		{"the last microsecond", store.OpCheck, hour.End - 1, bound, 1, store.Denied, 0},
		{"the next period", store.OpCheck, hour.End, bound, 3, store.Admitted, 4},
		{"set back over its beginning", store.OpCheck, hour.End - 1, bound, 1, store.Denied, 0},
		{"and on again", store.OpCheck, hour.End, bound, 2, store.Denied, 4},
		{"the epoch is not known", store.OpCheck, hour.End, quota.Bound{Share: 4}, 1, store.Denied, 0},
		{"the fence is left", store.OpCheck, hour.End, quota.Bound{Share: 4, Epoch: 7, FromUS: Epoch, ToUS: hour.End - 1}, 1, store.Denied, 0},
		{"the rest of it", store.OpCheck, hour.End, bound, 1, store.Admitted, 4},
	} {
		now(row.us)
		c := q.Call("acme", row.op, row.cost, nil)
		c.Bounds = []quota.Bound{row.bound}
		v, err := DecideOne(s, c)
		if err != nil || v.Outcome != row.outcome || v.Limits[0].Bounded != row.bounded {
			t.Errorf("%s: %+v, %v", row.what, v, err)
		}
	}
}

func boundedCalendar(units int64) *quota.Limit {
	l := calendarLimit("g", units, "hour", 0)
	l.Scope, l.MaxOvershoot = quota.ScopeGlobal, quota.Strict
	return l
}

// RunPeriodBounds has three regions, each with a store of its own, admit under one bound at random, and holds that in every period
// all together admit no more than it. Clocks are apart and are set over beginnings of periods either way; stores lose what they
// hold, which burns the share; reservations last over the end of a period.
func RunPeriodBounds(t *testing.T, newStore New) {
	const units, minute = 12, int64(60_000_000)
	type region struct {
		store   store.Store
		now     func(us int64)
		us      int64
		most    int64 // the largest TIME since the store held anything
		tenant  string
		bound   quota.Bound
		periods quota.Periods
		held    []int64 // ids of reservations
	}
	var regions [3]*region
	for i := range regions {
		regions[i] = &region{}
		regions[i].store, regions[i].now = newStore(t)
	}
	worlds, full := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		worlds++
		limit, admitted, steps := boundedCalendar(units), map[int64]int64{}, 0
		if rapid.Bool().Draw(t, "reservations") {
			limit.Counts, limit.HeldFor = quota.CountsTokens, time.Minute
		}
		q, terms, begin := Ask(limit), loan.TermsOfLimit(limit), limit.Calendar.At(Epoch).End-5*minute
		for i, r := range regions {
			us := begin + rapid.Int64Range(-5*minute, 5*minute).Draw(t, "apart")
			*r = region{store: r.store, now: r.now, us: us, most: us, tenant: fmt.Sprint("t", worlds, "-", i)}
			r.bound = quota.Bound{Share: []int64{7, 3, 2}[i], Epoch: uint32(worlds)}
		}
		charge := func(r *region, n int64) {
			now := limit.Calendar.At(r.us)
			p, older := r.periods.At(r.us, now, limit.Calendar.Next(now))
			p.Count(older).Add(n)
			r.periods = p
			number := p.Count(older).Number
			if admitted[number] += n; admitted[number] > units {
				t.Fatalf("in period %d all regions admitted %d of %d units", number, admitted[number], units)
			}
			if admitted[number] == units {
				full++
			}
		}
		for range rapid.IntRange(100, 300).Draw(t, "steps") {
			r := rapid.SampledFrom(regions[:]).Draw(t, "region")
			steps++
			c := q.Call(r.tenant, store.OpCheck, rapid.Int64Range(1, 4).Draw(t, "cost"), nil)
			c.Bounds = []quota.Bound{r.bound}
			switch kind := rapid.IntRange(0, 19).Draw(t, "kind"); {
			case kind == 0 && rapid.IntRange(0, 3).Draw(t, "lost") == 0:
				r.most = max(r.us, min(r.most, r.us+60*minute))
				last := terms.Burns(limit.Calendar, r.most)
				r.tenant, r.held, r.periods = fmt.Sprint(r.tenant, "-", steps), nil, quota.Periods{}
				r.bound.BurntThrough, r.bound.BurntUntilUS, r.bound.SinceUS = max(r.bound.BurntThrough, last.Number), last.End, r.us
				r.bound.Epoch++
				continue
			case kind == 1:
				r.us += rapid.Int64Range(-10*minute, 10*minute).Draw(t, "step")
				r.bound.Epoch++
				continue
			case kind < 6:
				r.us += rapid.Int64Range(0, 2*minute).Draw(t, "wait")
				r.most = max(r.most, r.us)
				continue
			case kind < 9 && limit.HeldFor > 0:
				c.Op, c.Hold = store.OpReserve, store.Hold{ID: int64(1000*worlds + steps), TTLUS: limit.HeldFor.Microseconds(), KeepUS: 1e9}
			case kind < 12 && len(r.held) > 0:
				c.Op, c.Hold, c.Cost = store.OpSettle, store.Hold{ID: r.held[0], KeepUS: 1e9}, 1
				r.held = r.held[1:]
			}
			r.now(r.us)
			v, err := DecideOne(r.store, c)
			switch {
			case err != nil:
				t.Fatal(err)
			case c.Op == store.OpReserve && v.Outcome == store.Admitted:
				r.held = append(r.held, c.Hold.ID)
			case v.Outcome == store.Settled && !v.Hold.Released: // it was over, or its epoch was: then it may exceed the bound
				now := limit.Calendar.At(r.us)
				p, older := r.periods.At(r.us, now, limit.Calendar.Next(now))
				p.Count(older).Add(c.Cost)
				r.periods = p
			case v.Outcome == store.Admitted || v.Outcome == store.Settled:
				charge(r, c.Cost)
			}
			r.most = max(r.most, r.us)
		}
	})
	t.Logf("%d worlds, in which a period was used up %d times", worlds, full)
	if full < worlds/20 {
		t.Error("too little was admitted to show anything")
	}
}
