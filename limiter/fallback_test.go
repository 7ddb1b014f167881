package limiter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// weatherStore is a Store that fails as the test says.
type weatherStore struct {
	*memstore.Store
	down    atomic.Pointer[store.Error]
	garbled atomic.Bool // each partition's data cannot be read
	silent  atomic.Bool // no verdict is filled in
	calls   atomic.Int64
}

func (s *weatherStore) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	s.calls.Add(int64(len(calls)))
	switch e := s.down.Load(); {
	case e != nil:
		if e.Ambiguous { // the replies alone are lost
			s.Store.Decide(ctx, calls, verdicts)
		}
		store.Fail(verdicts, e)
	case s.garbled.Load():
		store.Fail(verdicts, fmt.Errorf("%w: GARBAGE", store.ErrPartition))
	case s.silent.Load():
	default:
		s.Store.Decide(ctx, calls, verdicts)
	}
}

// weather is a rig on a weatherStore with a clock moved by hand.
type weather struct {
	*rig
	store *weatherStore
	at    time.Time // zero: the true time
	log   bytes.Buffer
}

func newWeather(t testing.TB, c limiter.Config) *weather {
	t.Helper()
	return weatherAt(t, c, atRest())
}

func weatherAt(t testing.TB, c limiter.Config, at time.Time) *weather {
	t.Helper()
	w := &weather{at: at}
	w.store = &weatherStore{Store: memstore.New(memstore.Options{Now: func() int64 { return w.now().UnixMicro() }})}
	w.rig = newRig(t, limiter.Options{Store: w.store, Config: c, Now: w.now, Logger: slog.New(slog.NewTextHandler(&w.log, nil))})
	return w
}

func (w *weather) now() time.Time {
	if w.at.IsZero() {
		return time.Now()
	}
	return w.at
}

// fails takes the store away.
func (w *weather) fails(r quota.Reason, ambiguous bool) {
	w.store.down.Store(&store.Error{Reason: r, Ambiguous: ambiguous, Err: errors.New("so the test says")})
}

func (w *weather) heals() { w.store.down.Store(nil) }

// forgets takes what the store held of a tenant, as a kill does.
func (w *weather) forgets(t *testing.T, tenant string) {
	t.Helper()
	ok(t, w.store.ResetAll(context.Background(), tenant, 0))
}

// manyPolicies has one policy for each fail mode and enforcement, named by both.
func manyPolicies(units int64) limiter.Config {
	c := onePolicy(quota.Policy{Name: "standard", Limits: perMinute(units)})
	for _, mode := range []quota.FailMode{quota.FailShare, quota.FailOpen, quota.FailClosed} {
		for _, e := range []quota.Enforcement{quota.Enforce, quota.Observe} {
			c.Policies = append(c.Policies, quota.Policy{
				Name: mode.String() + "-" + e.String(), Limits: perMinute(units),
				OnStoreLoss: mode, Enforcement: e, EnforcePercent: -1,
			})
		}
	}
	return c
}

func TestFallbackAnswers(t *testing.T) {
	for _, row := range []struct {
		policy    string
		basis     quota.Basis
		allowed   bool
		wouldDeny bool
		remaining int64
		retry     time.Duration
	}{
		{"share-enforce", quota.BasisLocal, true, false, 2, 0},
		{"open-enforce", quota.BasisOpen, true, false, 5, 0},
		{"closed-enforce", quota.BasisClosed, false, false, 0, time.Second},
		{"share-observe", quota.BasisLocal, true, false, 2, 0},
		{"open-observe", quota.BasisOpen, true, false, 5, 0},
		{"closed-observe", quota.BasisClosed, true, true, 0, time.Second},
	} {
		for _, reason := range []quota.Reason{quota.ReasonRedisDown, quota.ReasonRedisTimeout, quota.ReasonRedisRefused, quota.ReasonBreakerOpen} {
			w := newWeather(t, manyPolicies(5))
			w.fails(reason, true)
			d := w.check(t, "acme/"+row.policy, 3)
			if d.Basis != row.basis || d.Allowed != row.allowed || d.WouldDeny != row.wouldDeny {
				t.Errorf("%s: %v, allowed %v, would deny %v", row.policy, d.Basis, d.Allowed, d.WouldDeny)
			}
			if d.Mode != quota.ModeLocal || d.Reason != reason || d.StoreUS != 0 {
				t.Errorf("%s: mode %v, reason %v, store time %d; want local, %v, 0", row.policy, d.Mode, d.Reason, d.StoreUS, reason)
			}
			s := d.Limits[0]
			if s.Limit.Name != "minute" || s.Ceiling != 5 || s.Remaining != row.remaining || s.RetryAfter != row.retry || s.Denied != (row.retry > 0) {
				t.Errorf("%s: %+v", row.policy, s)
			}
		}
	}
}

// A partition that cannot be read is answered by its fail mode and counted, and so is a verdict that
// the store left as it was.
func TestFallbackForOnePartition(t *testing.T) {
	w := newWeather(t, manyPolicies(5))
	for n, fault := range []*atomic.Bool{&w.store.garbled, &w.store.silent} {
		fault.Store(true)
		for policy, want := range map[string]struct {
			allowed bool
			basis   quota.Basis
		}{"closed-enforce": {false, quota.BasisClosed}, "share-enforce": {true, quota.BasisLocal}, "open-enforce": {true, quota.BasisOpen}} {
			for _, ask := range []func(context.Context, quota.Request) (quota.Decision, error){w.Check, w.Peek} {
				d, err := ask(context.Background(), quota.Request{Tenant: "acme", Policy: policy, Cost: 1})
				if err != nil || d.Allowed != want.allowed || d.Basis != want.basis || d.Reason != quota.ReasonRedisRefused {
					t.Errorf("%s: %v, allowed %v by %v because of %v", policy, err, d.Allowed, d.Basis, d.Reason)
				}
			}
		}
		if got, want := w.count(t, "regiond.partition_faults"), int64(6*(n+1)); got != want {
			t.Errorf("%d partition faults are counted, want %d", got, want)
		}
		fault.Store(false)
	}
}

// What this process admitted on the store counts when the store is gone: of L,
// k are used, so L−k are left, among all the processes of the region.
func TestFallbackShareRemembers(t *testing.T) {
	for _, row := range []struct {
		limit     quota.Limit
		processes int64
		before    int
		local     int
	}{
		{quota.Limit{Units: 20, Window: time.Minute}, 1, 0, 20},
		{quota.Limit{Units: 20, Window: time.Minute}, 1, 7, 13},
		{quota.Limit{Units: 20, Window: time.Minute}, 1, 20, 0},
		{quota.Limit{Units: 20, Window: time.Minute}, 2, 0, 10},
		{quota.Limit{Units: 20, Window: time.Minute}, 2, 7, 3},
		{quota.Limit{Units: 20, Window: time.Minute}, 2, 15, 0},
		{quota.Limit{Units: 20, Window: time.Minute}, 3, 1, 5},
		{quota.Limit{Units: 2, Window: time.Minute}, 3, 0, 1}, // less than one each: one in two windows
		{quota.Limit{Units: 2, Window: time.Minute}, 3, 1, 0},
		{quota.Limit{Units: 20, Window: time.Minute, Algorithm: quota.SlidingWindow}, 1, 7, 13},
		{quota.Limit{Units: 20, Window: time.Minute, Algorithm: quota.SlidingWindow}, 2, 7, 3},
		{quota.Limit{Units: 20, Window: time.Hour, Algorithm: quota.GCRA, Burst: 8}, 1, 5, 3},
		{quota.Limit{Units: 20, Window: time.Hour, Algorithm: quota.GCRA, Burst: 8}, 2, 1, 3},
	} {
		row.limit.Name = "one"
		c := onePolicy(quota.Policy{Limits: []quota.Limit{row.limit}})
		c.Processes = func() int64 { return row.processes }
		w := newWeather(t, c)
		for range row.before {
			if d := w.check(t, "acme", 1); d.Basis != quota.BasisExact || !d.Allowed {
				t.Fatalf("before: allowed %v by %v", d.Allowed, d.Basis)
			}
		}
		w.fails(quota.ReasonRedisDown, false)
		if got := w.admits(t, "acme", 100); got != row.local {
			t.Errorf("%d in %v by %v, %d processes, %d used: %d admitted locally, want %d",
				row.limit.Units, row.limit.Window, row.limit.Algorithm, row.processes, row.before, got, row.local)
		}
	}
}

// A gcra limit that is divided drains at its share of the rate, not only from
// its share of the burst, also where a share of its units is less than one.
func TestFallbackShareDividesTheRate(t *testing.T) {
	const month = 31 * 24 * time.Hour
	for _, row := range []struct {
		units     int64
		per       time.Duration
		burst     int64
		processes int64
		first     int           // at once, by each
		asking    time.Duration // each hundredth of it from then on
		then      int           // all that is admitted in that time
	}{
		{10, time.Second, 40, 1, 40, 2 * time.Second, 20},
		{10, time.Second, 40, 2, 20, 2 * time.Second, 10},
		{1, time.Second, 8, 4, 2, time.Minute, 15}, // 68 of four in a minute: the burst, and 60
		{7, time.Second, 8, 4, 2, 4 * time.Second, 7},
		{4, time.Second, 8, 8, 1, 8 * time.Second, 4},
		{1, time.Second, 8, 9, 1, 900 * time.Second, 100}, // less than one of the burst each
		{2, month, 2, 2, 1, month, 1},
		{1 << 40, month, 1 << 40, 1 << 30, 1 << 10, month, 1 << 10},
	} {
		c := onePolicy(quota.Policy{Limits: []quota.Limit{{Name: "shaped", Units: row.units, Window: row.per, Algorithm: quota.GCRA, Burst: row.burst}}})
		c.Processes = func() int64 { return row.processes }
		w := newWeather(t, c)
		w.fails(quota.ReasonRedisDown, false)
		if got := w.admits(t, "acme", 2000); got != row.first {
			t.Errorf("%d in %v among %d: a burst of %d, want %d", row.units, row.per, row.processes, got, row.first)
		}
		got := 0
		for range 100 {
			w.at = w.at.Add(row.asking / 100)
			got += w.admits(t, "acme", 2000)
		}
		if got != row.then {
			t.Errorf("%d in %v among %d: %d admitted in %v, want %d", row.units, row.per, row.processes, got, row.asking, row.then)
		}
	}
}

// What memory admits under its share is remembered beside what Redis admitted, each at
// its time: the share has a longer window, and must not be taken for another limit.
func TestFallbackShareRemembersWhen(t *testing.T) {
	c := onePolicy(quota.Policy{Limits: []quota.Limit{{Name: "shaped", Units: 10, Window: 10 * time.Second, Algorithm: quota.GCRA}}})
	c.Processes = func() int64 { return 2 } // 5 at once, and one in two seconds
	w := newWeather(t, c)
	w.check(t, "acme", 4)
	w.at = w.at.Add(4 * time.Second)
	w.fails(quota.ReasonRedisDown, false)
	w.check(t, "acme", 1)
	w.heals()
	w.check(t, "another", 1)
	w.fails(quota.ReasonRedisDown, false)
	// Of 4 there are 2 left, and 1.
	if got := w.admits(t, "acme", 10); got != 2 {
		t.Errorf("%d more admitted, want 2: four seconds ago is not now", got)
	}
}

// Between two outages the store was the judge again. The second begins from all
// that was admitted by then, by either, and not from where the first had ended.
func TestFallbackBeginsAnewEachTime(t *testing.T) {
	w := newWeather(t, onePolicy(quota.Policy{Limits: perMinute(20)}))
	ask := func(n int, basis quota.Basis) {
		t.Helper()
		for range n {
			if d := w.check(t, "acme", 1); !d.Allowed || d.Basis != basis {
				t.Fatalf("allowed %v by %v, want %v", d.Allowed, d.Basis, basis)
			}
		}
	}
	ask(5, quota.BasisExact)
	w.fails(quota.ReasonRedisDown, false)
	w.forgets(t, "acme")
	ask(3, quota.BasisLocal)
	w.heals()
	ask(4, quota.BasisExact)
	w.fails(quota.ReasonRedisDown, false)
	if got := w.admits(t, "acme", 100); got != 20-5-3-4 {
		t.Errorf("the second outage admits %d, want 8", got)
	}
	// What ages out of the window is forgotten locally too.
	w.at = w.at.Add(2 * time.Minute)
	if got := w.admits(t, "acme", 100); got != 20 {
		t.Errorf("two minutes later %d, want all 20", got)
	}
}

// What is explained without Redis is the ceiling that decides then, not the one of Redis.
func TestFallbackExplains(t *testing.T) {
	c := globalPolicy(&others{ceiling: quota.Ceiling{Units: 7, Local: 18, Used: 3}})
	w := newWeather(t, c)
	explained := func() []quota.LimitExplanation {
		t.Helper()
		d, err := w.Check(context.Background(), quota.Request{Tenant: "acme", Cost: 1, Explain: true})
		if err != nil || d.Explanation == nil || len(d.Explanation.Limits) != 2 {
			t.Fatalf("%v %+v", err, d.Explanation)
		}
		return d.Explanation.Limits
	}
	if e := explained(); e[0].Part != 100 || e[0].Peers != nil || e[1].Ceiling != 7 || e[1].Part != 3 || e[1].Formula != "as the test says" || len(e[1].Peers) != 1 {
		t.Errorf("with Redis: %+v", e)
	}
	c.Processes = func() int64 { return 2 }
	ok(t, w.Configure(c))
	w.fails(quota.ReasonRedisDown, false)
	e := explained()
	if e[0].Ceiling != 50 || e[0].Formula != "the whole limit, 100 units in 1s, ÷ 2 processes" {
		t.Errorf("regional: %+v", e[0])
	}
	if e[1].Lost != 0 || e[1].Formula != "of 18 that the other regions leave, 3 are known to be used, ÷ 2 processes" {
		t.Errorf("global: %+v", e[1])
	}
}

func TestFallbackReportAlwaysCounts(t *testing.T) {
	for _, policy := range []string{"share-enforce", "open-enforce", "closed-enforce"} {
		w := newWeather(t, manyPolicies(5))
		w.fails(quota.ReasonRedisDown, false)
		for _, row := range []struct{ cost, left int64 }{{4, 1}, {9, 0}} {
			d, err := w.Report(context.Background(), quota.Request{Tenant: "acme", Policy: policy, Cost: row.cost})
			if err != nil || !d.Allowed || d.Basis != quota.BasisLocal || d.Limits[0].Remaining != row.left {
				t.Errorf("%s: %v %+v", policy, err, d)
			}
		}
	}
}

func TestFallbackResetForgetsLocally(t *testing.T) {
	w := newWeather(t, onePolicy(quota.Policy{Limits: perMinute(5)}))
	w.check(t, "acme", 3)
	w.fails(quota.ReasonRedisDown, false)
	if got := w.admits(t, "acme", 10); got != 2 {
		t.Fatalf("%d admitted, want the other 2", got)
	}
	ok(t, w.Reset(context.Background(), "acme"))
	if got := w.admits(t, "acme", 10); got != 5 {
		t.Errorf("%d admitted after the reset, want 5", got)
	}
}

// A check that did not reach the store, whose client has gone meanwhile, is charged
// nowhere: nobody hears the answer. All others are counted by memory: those that may have
// been charged, those that somebody still waits for, and reports.
func TestFallbackForNobodyChargesNothing(t *testing.T) {
	gone := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("the client hung up"))
		return ctx, func() {}
	}
	late := func() (context.Context, context.CancelFunc) {
		return context.WithDeadline(context.Background(), time.Unix(1, 0))
	}
	waiting := func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }
	for _, row := range []struct {
		what      string
		op        store.Op
		ctx       func() (context.Context, context.CancelFunc)
		ambiguous bool
		charged   int64
	}{
		{"a check, withdrawn", store.OpCheck, gone, false, 0},
		{"a check that was sent", store.OpCheck, gone, true, 3},
		{"a check whose time was over", store.OpCheck, late, false, 3},
		{"a check that somebody waits for", store.OpCheck, waiting, false, 3},
		{"a report", store.OpReport, gone, false, 3},
	} {
		o := &others{ceiling: quota.Ceiling{Units: 10, Local: 10}}
		w := newWeather(t, globalPolicy(o))
		w.fails(quota.ReasonRedisTimeout, row.ambiguous)
		ask := w.Check
		if row.op == store.OpReport {
			ask = w.Report
		}
		ctx, cancel := row.ctx()
		d, err := ask(ctx, quota.Request{Tenant: "acme", Cost: 3})
		cancel()
		if err != nil || !d.Allowed || d.Basis != quota.BasisLocal || d.Reason != quota.ReasonRedisTimeout {
			t.Errorf("%s: %+v %v", row.what, d, err)
		}
		if published := o.drain(); (len(published) > 0) != (row.charged > 0) {
			t.Errorf("%s: the other regions were published %q", row.what, published)
		}
		left, err := w.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1})
		if err != nil || left.Limits[1].Remaining != 10-row.charged {
			t.Errorf("%s: %+v (%v), want %d of 10 charged", row.what, left.Limits, err, row.charged)
		}
	}
}
