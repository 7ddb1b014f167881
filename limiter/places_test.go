package limiter

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

func TestOverflowAdmitsUpToMost(t *testing.T) {
	now := time.Unix(1_795_198_405, 0)
	o := newOverflow(func() int64 { return now.UnixMicro() })
	o.places.Bound(2)
	const ttl = 2*time.Minute - placeMargin
	for _, row := range []struct {
		why  string
		pass time.Duration
		keys string
		want bool
		live int
	}{
		{"the first", 0, "a", true, 1},
		{"the second", 0, "b", true, 2},
		{"the third of two", 0, "c", false, 2},
		{"one that is live already", time.Minute, "a", true, 2},
		{"still no place: half of the life of keys is not enough", 0, "c", false, 2},
		{"the keys of b have gone", time.Minute, "c", true, 2},
		{"so it comes too late now", 0, "b", false, 2},
		{"another set with the key of a live one", 0, "a b", false, 2},
		{"a and c end when their keys do", 3 * time.Minute, "b", true, 1},
		{"two keys are one set", 0, "a b", true, 2},
		{"and stay one", 0, "a b", true, 2},
	} {
		now = now.Add(row.pass)
		if o.admit(strings.Fields(row.keys), ttl, false) != row.want {
			t.Errorf("%s: a look finds it otherwise", row.why)
		}
		got := o.admit(strings.Fields(row.keys), ttl, true)
		if got != row.want || o.size() != row.live {
			t.Errorf("%s: admitted %v with %d live, want %v with %d", row.why, got, o.size(), row.want, row.live)
		}
	}
}

// TestPlacesOutliveASteppedClock: a step of the host's wall clock frees no place, and keeps none.
func TestPlacesOutliveASteppedClock(t *testing.T) {
	for _, step := range []time.Duration{0, time.Hour, -time.Hour} {
		now := time.Now()
		l, err := New(Options{
			Store: memstore.New(memstore.Options{}), Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
			Config: Config{
				Policies: []quota.Policy{{Name: "standard", Limits: []quota.Limit{{Name: "minute", Units: 50, Window: time.Minute}}, EnforcePercent: -1}},
				Default:  &quota.Tenant{Policy: "standard"}, MaxUnknown: 1,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Check(t.Context(), quota.Request{Tenant: "first", Cost: 1}); err != nil {
			t.Fatal(err)
		}
		now = stepped(t, now, step)
		for _, row := range []struct {
			pass time.Duration // since the row before
			free bool
		}{{time.Minute, false}, {3*time.Minute + time.Second, true}} {
			now = now.Add(row.pass)
			if free := l.overflow.admit([]string{"second"}, 0, false); free != row.free {
				t.Errorf("%v later, the clock stepped by %v: room for a second is %v, want %v", row.pass, step, free, row.free)
			}
		}
	}
}

// stepped is a moment at which the host's wall clock was set on or back, in whole seconds:
// a time.Time holds its reading beside that of the monotonic clock, which goes on.
func stepped(t *testing.T, at time.Time, by time.Duration) time.Time {
	t.Helper()
	now := at
	// The first word: a flag, 33 bits of seconds and 30 of nanoseconds, of the wall clock.
	*(*uint64)(unsafe.Pointer(&now)) += uint64(by/time.Second) << 30
	if now.UnixMicro()-at.UnixMicro() != by.Microseconds() || now.Sub(at) != 0 {
		t.Fatalf("%v was stepped by %v to %v, %v later", at, by, now, now.Sub(at))
	}
	return now
}

// BenchmarkValues is what max_values adds to each key of a check that counts by a dimension.
func BenchmarkValues(b *testing.B) {
	v, seed, by := &values{}, maphash.MakeSeed(), []string{"user"}
	users := make([]quota.Dimensions, 1<<16)
	for i := range users {
		users[i] = quota.Dimensions{{Name: "user", Value: fmt.Sprint("user", i)}}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		v.of(by, 1<<20).admit(valueID(seed, by, users[i%len(users)]), int64(i), time.Minute, true)
	}
}

// awayStore is a Redis that is away.
type awayStore struct{ *memstore.Store }

func (awayStore) Decide(_ context.Context, _ []store.Call, verdicts []store.Verdict) {
	store.Fail(verdicts, &store.Error{Reason: quota.ReasonRedisDown, Err: context.DeadlineExceeded})
}

// Where memory has no room for another partition, that is refused while Redis is away, and those it has stay counted.
func TestLocalKeepsThoseItHas(t *testing.T) {
	l, err := New(Options{
		Store: awayStore{}, Logger: slog.New(slog.DiscardHandler),
		Config: Config{
			Policies: []quota.Policy{{Name: "standard", Limits: []quota.Limit{{Name: "day", Units: 2, Window: 24 * time.Hour}}, EnforcePercent: -1}},
			Default:  &quota.Tenant{Policy: "standard"}, MaxUnknown: 1 << 20,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.local = memstore.New(memstore.Options{Partitions: 2, Coarse: true})
	for _, row := range []struct {
		tenant  string
		allowed bool
		basis   quota.Basis
	}{
		{"a", true, quota.BasisLocal},
		{"b", true, quota.BasisLocal},
		{"c", false, quota.BasisClosed},
		{"a", true, quota.BasisLocal},
		{"a", false, quota.BasisLocal},
		{"c", false, quota.BasisClosed},
	} {
		d, err := l.Check(t.Context(), quota.Request{Tenant: row.tenant, Cost: 1})
		if err != nil || d.Allowed != row.allowed || d.Basis != row.basis {
			t.Errorf("%s: allowed %v by %v (%v), want %v by %v", row.tenant, d.Allowed, d.Basis, err, row.allowed, row.basis)
		}
	}
}

// TestReloadsForgetTenants: what a process keeps of tenants does not grow with the reloads that replace them. A value whose counts are
// live keeps its place over a reload.
func TestReloadsForgetTenants(t *testing.T) {
	now := time.Unix(1_795_198_405, 0)
	config := func(tenant string) Config {
		return Config{
			MaxValues: 1, Tenants: map[string]quota.Tenant{tenant: {Policy: "p"}, "stays": {Policy: "p"}},
			Policies: []quota.Policy{{Name: "p", EnforcePercent: -1, Limits: []quota.Limit{
				{Name: "user", Units: 5, Window: time.Minute, By: []string{"user"}},
			}}},
		}
	}
	l, err := New(Options{
		Store: memstore.New(memstore.Options{Now: func() int64 { return now.UnixMicro() }}), Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now }, Config: config("first"),
	})
	if err != nil {
		t.Fatal(err)
	}
	shares := func(tenant, user string) bool {
		d, err := l.Check(context.Background(), quota.Request{
			Tenant: tenant, Cost: 1, Dimensions: quota.Dimensions{{Name: "user", Value: user}}, Explain: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return d.Explanation.Shared
	}
	for i := range 20 {
		tenant := fmt.Sprint("tenant", i)
		if err := l.Configure(config(tenant)); err != nil {
			t.Fatal(err)
		}
		if shares(tenant, "a") || shares("stays", "a") || !shares("stays", "b") {
			t.Fatalf("after %d reloads: another value has the place", i)
		}
		now = now.Add(90 * time.Second)
	}
	kept := 0
	l.overflow.values.Range(func(any, any) bool { kept++; return true })
	if kept > 4 { // those of the last two minutes
		t.Errorf("values of %d tenants are kept", kept)
	}
}
