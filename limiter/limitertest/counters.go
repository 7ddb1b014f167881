package limitertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/test/oracle"
)

// CountersAddUp holds that usage counters show what was admitted, however TIME steps: a
// peer keeps the largest of each bucket and generation, and adds them up. No counter
// falls under a name that it had, and none begins anew under it.
func CountersAddUp(t *testing.T, newStore New) {
	type name struct{ generation, bucket int64 }
	s, now := newStore(t)
	q := Ask(&quota.Limit{Name: "g", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal})
	held := map[name]int64{}
	us, admitted := Epoch, int64(0)
	for i, seconds := range []int64{0, 30, -50, 20, -180, 10, 60, 120, 300, -3600, -61, 61, 3600, 3600, -59, -120, -120} {
		us += seconds * 1_000_000
		now(us)
		cost := int64(i + 1)
		v, err := Decide(s, q.Call("acme", store.OpReport, cost, nil))
		if err != nil {
			t.Fatal(err)
		}
		admitted += cost
		got := v[0].Limits[0].Counter
		of := name{got.Generation, got.Bucket}
		if got.Units < held[of]+cost {
			t.Errorf("step %d: %d units in bucket %d of generation %d, which had %d before %d more", i, got.Units, got.Bucket, got.Generation, held[of], cost)
		}
		held[of] = max(held[of], got.Units)
	}
	sum := int64(0)
	for _, units := range held {
		sum += units
	}
	if sum != admitted {
		t.Errorf("peers hold %d units, %d were admitted: %v", sum, admitted, held)
	}
}

// CountersOfAReset holds that a reset forgets the logs of a tenant and not what was published to peers, and
// a reset of everything also its usage counters up to a generation, but neither later ones, nor loans, nor
// other tenants.
func CountersOfAReset(t *testing.T, newStore New) {
	s, now := newStore(t)
	now(Epoch)
	q := Ask(&quota.Limit{Name: "g", Units: 10, Window: time.Minute, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict})
	call := func(tenant string, op store.Op, cost int64) store.Call {
		c := q.Call(tenant, op, cost, nil)
		c.Bounds = []quota.Bound{{Share: 10, Epoch: 4_000_000_000}}
		return c
	}
	lends := call("a*c", store.OpLoans, 0)
	lends.Loans = []store.LoanOp{{Kind: store.LoanLend, Units: 2, Request: loan.Request{From: "us", Epoch: 3_000_000_000, Time: Epoch}}}
	if v, err := Decide(s, call("a*c", store.OpCheck, 4), call("abc", store.OpCheck, 4), lends); err != nil || v[2].Loans.Results[0].Grant.Units != 2 {
		t.Fatal(v, err)
	}
	reset := func(upTo int64) {
		t.Helper()
		if err := s.ResetAll(context.Background(), "a*c", upTo); err != nil {
			t.Fatal(err)
		}
	}
	var had int64
	check := func(what, tenant string, remaining, units int64) {
		t.Helper()
		v, err := DecideOne(s, call(tenant, store.OpCheck, 1))
		if err != nil || v.Limits[0].Remaining != remaining || v.Limits[0].Counter.Units != units {
			t.Fatalf("%s: %+v, %v", what, v, err)
		}
		had = v.Limits[0].Counter.Generation
	}
	if err := s.ResetAll(context.Background(), "a*c", 0); err != nil {
		t.Fatal(err)
	}
	check("a reset of the logs", "a*c", 7, 5)
	reset(Epoch - 1)
	check("the counter is later", "a*c", 7, 6)
	now(Epoch + 1)
	reset(had)
	check("the counter is deleted, and what was lent is not", "a*c", 7, 1)
	if had != Epoch+1 {
		t.Errorf("the counter is of generation %d, it began at %d", had, Epoch+1)
	}
	check("another tenant", "abc", 5, 5)
}

// CountersThatAreLost holds that nothing is charged under a ceiling that rests on what the
// store does not hold: the key is gone or another one, or went back. One that went back
// begins another generation.
func CountersThatAreLost(t *testing.T, newStore New) {
	s, now := newStore(t)
	now(Epoch)
	q := Ask(
		&quota.Limit{Name: "r", Units: 1000, Window: time.Hour},
		&quota.Limit{Name: "g", Units: 1000, Window: time.Hour, Scope: quota.ScopeGlobal},
		&quota.Limit{Name: "h", Units: 1000, Window: time.Hour, Scope: quota.ScopeGlobal},
	)
	bucket := Epoch / time.Hour.Microseconds()
	held := quota.Counter{Generation: Epoch, Bucket: bucket, Units: 10}
	changed := func(change func(c *quota.Counter)) quota.Counter {
		c := held
		change(&c)
		return c
	}
	for i, row := range []struct {
		what  string
		known quota.Counter
		lost  bool
	}{
		{"nothing is known", quota.Counter{}, false},
		{"what is there", held, false},
		{"less than is there", changed(func(c *quota.Counter) { c.Units-- }), false},
		{"a bucket before", changed(func(c *quota.Counter) { c.Bucket--; c.Units = 900 }), false},
		{"before the clock stepped back", changed(func(c *quota.Counter) { c.Generation--; c.Bucket += 9; c.Units = 900 }), false},
		{"another key", changed(func(c *quota.Counter) { c.Generation -= 1_000_000 }), true},
		{"another key, of which no unit is known", changed(func(c *quota.Counter) { c.Generation -= 1_000_000; c.Units = 0 }), true},
		{"a key that was made later", changed(func(c *quota.Counter) { c.Generation += 1_000_000 }), true},
		{"a unit more than is there", changed(func(c *quota.Counter) { c.Units++ }), true},
		{"a bucket after", changed(func(c *quota.Counter) { c.Bucket++; c.Units = 1 }), true},
		{"after a step of the clock", changed(func(c *quota.Counter) { c.Generation++; c.Bucket--; c.Units = 1 }), true},
	} {
		for _, op := range []store.Op{store.OpCheck, store.OpPeek, store.OpReport} {
			for _, cost := range []int64{1, 2} { // the common case is decided by other code
				tenant := fmt.Sprint(i, string(op), cost)
				now(Epoch)
				for range held.Units { // a larger cost would leave a log that is not common
					if v, err := Decide(s, q.Call(tenant, store.OpCheck, 1, nil)); err != nil || v[0].Outcome != store.Admitted {
						t.Fatalf("%+v, %v", v, err)
					}
				}
				now(Epoch + 1)
				call := q.Call(tenant, op, cost, nil)
				call.Known = []quota.Counter{row.known, held}
				v, err := Decide(s, call, q.Call(tenant, store.OpPeek, 1, nil))
				if err != nil {
					t.Fatal(err)
				}
				if got := v[0].Outcome == store.Lost; got != row.lost {
					t.Errorf("%s, %c of %d: %c", row.what, op, cost, v[0].Outcome)
				}
				used, counter := 1000-v[1].Limits[0].Remaining, v[1].Limits[1].Counter
				behind := row.lost && quota.SameKey(row.known.Generation, held.Generation)
				switch {
				case row.lost && used != held.Units:
					t.Errorf("%s, %c of %d: %d units are charged", row.what, op, cost, used-held.Units)
				case row.lost && !behind && v[0].Limits[1].Counter != held:
					t.Errorf("%s, %c of %d: the store says that it holds %v", row.what, op, cost, v[0].Limits[1].Counter)
				case behind && (v[0].Limits[1].Counter != quota.Counter{} || counter != quota.Counter{}):
					t.Errorf("%s, %c of %d: the counter that went back is still there: %v", row.what, op, cost, counter)
				case !row.lost && op != store.OpPeek && used != held.Units+cost:
					t.Errorf("%s, %c of %d: %d units are charged", row.what, op, cost, used-held.Units)
				}
			}
		}
	}
	call := q.Call("nobody", store.OpCheck, 1, nil)
	call.Known = []quota.Counter{{}, held}
	if v, err := Decide(s, call); err != nil || v[0].Outcome != store.Lost || v[0].Limits[2].Counter != (quota.Counter{}) {
		t.Errorf("a key that is not there: %+v, %v", v, err)
	}
	call = q.Call("half", store.OpCheck, 1, nil)
	for range held.Units {
		if _, err := Decide(s, call); err != nil {
			t.Fatal(err)
		}
	}
	there := quota.Counter{Generation: Epoch + 1, Bucket: bucket, Units: held.Units}
	gone := there
	gone.Units++
	call.Known = []quota.Counter{there, gone}
	if v, err := Decide(s, call, q.Call("half", store.OpPeek, 1, nil)); err != nil || v[0].Outcome != store.Lost || v[1].Limits[1].Counter != there {
		t.Errorf("one of two keys is behind: %+v, %v", v, err)
	}
	periodsThatAreLost(t, s, now)
}

// periodsThatAreLost holds that periods whose usage counter went back are dropped with it: all that was known of that counts
// as lost, and would count here once more until the period ends. Where another key is missed they stay, and under a bound.
func periodsThatAreLost(t *testing.T, s store.Store, now func(us int64)) {
	t.Helper()
	month := &quota.Calendar{Unit: quota.CalendarMonth, Zone: time.UTC, Anchor: 1}
	for place, bounds := range [][]quota.Bound{nil, {{Share: 1000, Epoch: 1}}} {
		m := &quota.Limit{
			Name: "m", Units: 1000, Window: month.Unit.Window(), Algorithm: quota.CalendarPeriods, Calendar: month,
			Scope: quota.ScopeGlobal,
		}
		if bounds != nil {
			m.MaxOvershoot = quota.Strict
		}
		q := Ask(&quota.Limit{Name: "r", Units: 1000, Window: time.Hour}, m)
		for _, cost := range []int64{1, 2} {
			tenant := fmt.Sprint("month-", place, "-", cost)
			ask := func(op store.Op, cost int64, known ...quota.Counter) store.Verdict {
				c := q.Call(tenant, op, cost, nil)
				c.Known, c.Bounds = known, bounds
				v, err := DecideOne(s, c)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			now(Epoch)
			had := ask(store.OpCheck, 10).Limits[1].Counter
			lost := func(what string, known quota.Counter, used int64) {
				t.Helper()
				outcome := ask(store.OpCheck, cost, known).Outcome
				v := ask(store.OpPeek, cost)
				if outcome != store.Lost || v.Limits[0].Remaining != 990 || v.Limits[1].Remaining != 1000-used {
					t.Errorf("%s, bounds %v: %c, then %s, want %d used of the month", what, bounds, outcome, q.Text(&v), used)
				}
			}
			known := had
			known.Generation -= 1_000_000
			lost("another key", known, 10)
			known = had
			known.Units++
			lost("a unit more than is there", known, map[bool]int64{true: 10}[bounds != nil])
			now(Epoch + 5_000_000)
			if c := ask(store.OpCheck, cost).Limits[1].Counter; c.Units != cost || quota.SameKey(c.Generation, had.Generation) {
				t.Errorf("bounds %v: after %+v the counter is %+v", bounds, had, c)
			}
		}
	}
}

// reset holds that a reset forgets what one tenant has used, its idempotency keys
// among it, and nothing of tenants whose ids look like patterns of it.
func reset(t *testing.T, newStore New) {
	s, now := newStore(t)
	now(Epoch)
	q := Ask(rule("log", quota.SlidingLog, 1, 1000), rule("window", quota.SlidingWindow, 1, 1000))
	left := func(tenant string) string {
		v := decide(s, q.Call(tenant, store.OpCheck, 1, nil))[0]
		return q.Text(&v)
	}
	fresh, spent := "a 0 0 1000 | 0 0 2000", "d 0 1000 1000 | 0 2000 2000"
	tenants := []string{"a*c", "abc", "a*", "a[b]c", `a\c`, "a?c"}
	record := func(tenant string) byte {
		c := q.Call(tenant, store.OpReport, 1, nil)
		c.Record, c.Print = "rl:{"+tenant+"}:i:1.k:", "one"
		return decide(s, c)[0].Outcome
	}
	for _, tenant := range tenants {
		if got := left(tenant); got != fresh {
			t.Errorf("%s at first: %s", tenant, got)
		}
		record(tenant)
	}
	if err := s.ResetAll(context.Background(), "a*c", 0); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range tenants {
		want, outcome := spent, byte(oracle.Replayed)
		if tenant == "a*c" {
			want, outcome = fresh, oracle.Admitted
		}
		if got := left(tenant); got != want {
			t.Errorf("%s after the reset of a*c: %s, want %s", tenant, got, want)
		}
		if got := record(tenant); got != outcome {
			t.Errorf("%s with its key after the reset of a*c: %c, want %c", tenant, got, outcome)
		}
	}
}
