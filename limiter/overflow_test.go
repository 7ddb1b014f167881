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
		got := o.admit(strings.Fields(row.keys), ttl, true)
		if got != row.want || o.size() != row.live {
			t.Errorf("%s: admitted %v with %d live, want %v with %d", row.why, got, o.size(), row.want, row.live)
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

// A place is held for the life of its keys that has passed, whatever the host's wall clock
// was set to meanwhile.
func TestOverflowOutlivesASteppedClock(t *testing.T) {
	for _, row := range []struct {
		step, pass time.Duration
		free       bool
	}{
		{0, time.Minute, false},
		{time.Hour, time.Minute, false},
		{-time.Hour, time.Minute, false},
		{0, 4 * time.Minute, true},
		{time.Hour, 4 * time.Minute, true},
		{-time.Hour, 4 * time.Minute, true},
	} {
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
		if _, err := l.Check(context.Background(), quota.Request{Tenant: "first", Cost: 1}); err != nil {
			t.Fatal(err)
		}
		now = stepped(t, now, row.step).Add(row.pass)
		if free := l.overflow.admit([]string{"second"}, 0, false); free != row.free {
			t.Errorf("%v after the first, the wall clock stepped by %v: room for a second is %v, want %v", row.pass, row.step, free, row.free)
		}
	}
}

// seenStore notes the partitions that it is asked for.
type seenStore struct {
	*memstore.Store
	partitions map[string]bool
}

func (s *seenStore) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	s.partitions[calls[0].Keys[0]] = true
	s.Store.Decide(ctx, calls, verdicts)
}

// Under a flood of invented ids nothing grows: neither the count of the living,
// nor the store, which sees one partition more for all the newcomers together.
func TestOverflowFlood(t *testing.T) {
	t.Parallel() // it measures no time
	const most, flood = 100, 20_000
	now := time.Unix(1_795_198_405, 0)
	s := &seenStore{memstore.New(memstore.Options{Now: func() int64 { return now.UnixMicro() }}), map[string]bool{}}
	l, err := New(Options{
		Store: s, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
		Config: Config{
			Policies: []quota.Policy{{Name: "standard", Limits: []quota.Limit{{Name: "minute", Units: 50, Window: time.Minute}}, EnforcePercent: -1}},
			Default:  &quota.Tenant{Policy: "standard"}, Tenants: map[string]quota.Tenant{"acme": {Policy: "standard"}}, MaxUnknown: most,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(tenant string) bool {
		d, err := l.Check(context.Background(), quota.Request{Tenant: tenant, Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		return d.Allowed
	}
	admitted := 0
	for i := range flood {
		if allowed(fmt.Sprint("invented", i)) {
			admitted++
		}
	}
	if admitted != most+50 {
		t.Errorf("%d of the flood were admitted, want %d with partitions of their own and 50 from the shared one", admitted, most)
	}
	kept := len(s.partitions)
	if kept != most+1 || l.overflow.size() != most {
		t.Errorf("the store has seen %d partitions, %d are counted, want %d and %d", kept, l.overflow.size(), most+1, most)
	}
	for i := range 50 {
		if !allowed("acme") {
			t.Fatalf("a listed tenant was denied at %d of 50", i)
		}
	}
	if allowed("acme") {
		t.Error("a listed tenant went past its limit")
	}
	if !allowed("invented7") || allowed("latecomer") {
		t.Error("an unlisted tenant with a place of its own keeps it; a newcomer has none")
	}
	// Once the flood is over and has aged out, newcomers count as themselves again.
	now = now.Add(4 * time.Minute)
	if !allowed("latecomer") || !allowed("latecomer2") || l.overflow.size() > most {
		t.Error("the places of those who left were not given away")
	}
}

// BenchmarkValues is what max_values adds to each key of a check that counts by a dimension.
func BenchmarkValues(b *testing.B) {
	v, seed := &values{}, maphash.MakeSeed()
	k := &store.NewKeyPlan([]*quota.Limit{{Name: "user", Units: 5, Window: time.Minute, By: []string{"user"}}}).Keys[0]
	users := make([]quota.Dimensions, 1<<16)
	for i := range users {
		users[i] = quota.Dimensions{{Name: "user", Value: fmt.Sprint("user", i)}}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		v.admit(valueID(seed, k.Limits[0].By, users[i%len(users)]), k, int64(i), 1<<20, true)
	}
}
