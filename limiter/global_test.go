package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// others is a Global with the ceiling that a test sets; it keeps what is published.
type others struct {
	mu        sync.Mutex
	ceiling   quota.Ceiling
	grows     func(units int64) time.Duration // nil: never within the window
	published []string
}

func (o *others) Ceiling(_ *quota.Policy, _ *quota.Limit, _ *quota.CounterKey, explain bool, _ int64) quota.Ceiling {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.ceiling
	if explain {
		c.Terms = &quota.CeilingTerms{Part: 3, Lost: 2, Formula: "as the test says", Peers: []quota.PeerTerm{{Region: "us-east"}}}
	}
	return c
}

func (o *others) Grows(_ *quota.Policy, l *quota.Limit, _ *quota.CounterKey, units int64) time.Duration {
	if o.grows == nil {
		return l.Window
	}
	return o.grows(units)
}

func (o *others) Record(_ context.Context, _ *quota.Policy, _ *quota.Limit, key *quota.CounterKey, t quota.Counter, _ quota.Gauge, storeUS int64) {
	o.note("%v holds %d in %d of generation %d at %d", *key, t.Units, t.Bucket, t.Generation, storeUS)
}

func (o *others) Local(_ context.Context, _ *quota.Policy, _ *quota.Limit, key *quota.CounterKey, units int64) {
	o.note("%v: %d without the store", *key, units)
}

func (o *others) Asked(key *quota.CounterKey, a loan.Ask) { o.note("%v asked %+v", *key, a) }

func (o *others) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.published = append(o.published, fmt.Sprintf(format, args...))
}

// drain returns what was published since the last call.
func (o *others) drain() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	published := o.published
	o.published = nil
	return published
}

func (o *others) set(c quota.Ceiling) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ceiling = c
}

// globalPolicy has a regional limit and a global one on the same partition.
func globalPolicy(o *others) limiter.Config {
	c := onePolicy(quota.Policy{Name: "standard", Limits: []quota.Limit{
		{Name: "burst", Units: 100, Window: time.Second},
		{Name: "sustained", Units: 10, Window: time.Minute, Scope: quota.ScopeGlobal},
	}})
	c.Global = o
	return c
}

// What the store holds of a counter is published, whether it admitted or denied:
// only so does a process learn that a store has forgotten.
func TestGlobalUsageIsPublished(t *testing.T) {
	o := &others{ceiling: quota.Ceiling{Units: 3, Local: 3}}
	w := newWeather(t, globalPolicy(o))
	us := w.at.UnixMicro()
	key := "{acme standard sustained :: 60000000 }"
	holds := func(units int64) []string {
		if units == 0 {
			return []string{fmt.Sprintf("%s holds 0 in 0 of generation 0 at %d", key, us)}
		}
		return []string{fmt.Sprintf("%v holds %d in %d of generation %d at %d", key, units, us/60_000_000, us, us)}
	}
	expect := func(what string, want []string) {
		t.Helper()
		if got := o.drain(); !slices.Equal(got, want) {
			t.Errorf("%s: published %q, want %q", what, got, want)
		}
	}
	must(w.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1}))(t)
	expect("a peek before anything", holds(0))
	w.check(t, "acme", 2)
	expect("an admission", holds(2))
	if d := w.check(t, "acme", 2); d.Allowed {
		t.Fatal("2 + 2 fitted under 3")
	}
	expect("a denial", holds(2))
	if d := w.check(t, "acme", 2); d.Basis != quota.BasisCached {
		t.Fatalf("asked again, basis %v", d.Basis)
	}
	expect("a remembered denial", nil)
	must(w.Report(context.Background(), quota.Request{Tenant: "acme", Cost: 50}))(t)
	expect("a report past the limit", holds(52))
}

// An admission that is replayed is as it was when it was given.
func TestGlobalReplayPublishesNothing(t *testing.T) {
	o := &others{ceiling: quota.Ceiling{Units: 10, Local: 10}}
	w := newWeather(t, globalPolicy(o))
	for range 2 {
		must(w.Check(context.Background(), quota.Request{Tenant: "acme", Cost: 1, IdempotencyKey: "k"}))(t)
	}
	if published := o.drain(); len(published) != 1 {
		t.Errorf("published %q", published)
	}
}

// While the store is away the local counter has the ceiling that leaves out what
// the store forgot, and what it admits is published separately.
func TestGlobalLocal(t *testing.T) {
	o := &others{ceiling: quota.Ceiling{Units: 1, Local: 4, Mode: quota.ModePartitioned, Reason: quota.ReasonPeerSilent}}
	c := globalPolicy(o)
	c.Processes = func() int64 { return 2 }
	w := newWeather(t, c)
	w.fails(quota.ReasonRedisDown, false)
	allowed := 0
	for range 5 {
		d := w.check(t, "acme", 1)
		if d.Mode != quota.ModeLocal || d.Reason != quota.ReasonRedisDown || d.Limits[1].Ceiling != 2 {
			t.Errorf("mode %v, reason %v, ceiling %d", d.Mode, d.Reason, d.Limits[1].Ceiling)
		}
		if d.Allowed {
			allowed++
		}
	}
	want := slices.Repeat([]string{"{acme standard sustained :: 60000000 }: 1 without the store"}, 2)
	if published := o.drain(); allowed != 2 || !slices.Equal(published, want) {
		t.Errorf("%d allowed, published %q", allowed, published)
	}
}

// A policy that is closed while blind charges nobody; reports are
// spent already.
func TestGlobalClosed(t *testing.T) {
	o := &others{ceiling: quota.Ceiling{Closed: true, Mode: quota.ModeStale, Reason: quota.ReasonPeerSilent}}
	w := newWeather(t, globalPolicy(o))
	d := w.check(t, "acme", 1)
	if d.Allowed || d.Basis != quota.BasisClosed || d.Mode != quota.ModeStale || d.Reason != quota.ReasonPeerSilent {
		t.Errorf("%+v", d)
	}
	if published := o.drain(); published != nil {
		t.Errorf("the store was asked: %q", published)
	}
	if d, err := w.Report(context.Background(), quota.Request{Tenant: "acme", Cost: 1}); err != nil || !d.Allowed {
		t.Errorf("a report: %+v, %v", d, err)
	}
}

// Retry-After under a global limit is the earlier of two: own units age out, or
// the estimate fades. The second is asked for what is used and the cost together.
func TestGlobalRetryAfter(t *testing.T) {
	o := &others{ceiling: quota.Ceiling{Units: 6, Local: 6}}
	w := newWeather(t, globalPolicy(o))
	w.check(t, "acme", 5)
	w.at = w.at.Add(10 * time.Second)
	for _, row := range []struct {
		ceiling, cost int64
		asked         int64 // how high the ceiling would have to be; 0: never high enough
		grows, want   time.Duration
	}{
		{6, 2, 7, 20 * time.Second, 20 * time.Second},
		{6, 2, 7, 55 * time.Second, 50 * time.Second}, // own units go first
		{3, 2, 7, 20 * time.Second, 20 * time.Second}, // 5 are used, beyond the ceiling
		{1, 2, 7, 20 * time.Second, 20 * time.Second}, // the cost is above the ceiling
		{1, 2, 7, time.Minute, time.Minute},           // and it never grows
		{6, 6, 0, 20 * time.Second, 50 * time.Second}, // 5 + 6 are more than the limit
		{0, 10, 0, 20 * time.Second, 60 * time.Second},
	} {
		asked := int64(0)
		o.grows = func(units int64) time.Duration { asked = units; return row.grows }
		o.set(quota.Ceiling{Units: row.ceiling, Local: row.ceiling})
		d, err := w.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: row.cost}) // peeks are not remembered
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Limits[1].RetryAfter; d.Allowed || d.Basis != quota.BasisEstimate || got != row.want || asked != row.asked {
			t.Errorf("ceiling %d, cost %d: allowed %v by %v, retry after %v (want %v), asked for %d (want %d)",
				row.ceiling, row.cost, d.Allowed, d.Basis, got, row.want, asked, row.asked)
		}
	}
}
