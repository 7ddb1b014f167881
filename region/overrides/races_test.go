package overrides

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// alone is a process of region eu at a time that stands still, on a store.
func alone(t *testing.T, s *regionStore, nowUS int64) *follower {
	t.Helper()
	top := &region.Topology{Policies: []quota.Policy{{Name: "p", Limits: []quota.Limit{{Name: "l", Units: 1000, Window: time.Minute}}}}, Tenants: region.Tenants{Default: &quota.Tenant{Policy: "p"}}}
	v, err := New(Options{
		Region: "eu", TimeUS: func() int64 { return nowUS }, Now: func() time.Time { return time.UnixMicro(nowUS) },
		Topology: func() *region.Topology { return top }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	v.keeper, v.shared = s, s
	return &follower{Overlay: v, at: -1}
}

// mergeOne has a process take one override of another region in.
func (f *follower) mergeOne(ctx context.Context, from string, o *quota.Override) error {
	a := &arrival{Override: o, text: string(o.AppendText(nil))}
	f.loaded.Store(true)
	f.merge(ctx, quota.Process{Region: from}, []*arrival{a})
	return a.err
}

func l(tenant string, units int64) quota.Override {
	return quota.Override{Tenant: tenant, By: "x", Limits: []quota.OverrideLimit{{Name: "l", Units: units}}}
}

const nowUS = 1_700_000_000_000_000

// Equal edits of two processes at the same µs that want there to be none: one is carried out.
func TestEqualEditsAtOneTime(t *testing.T) {
	s := newStore()
	one, two := alone(t, s, nowUS), alone(t, s, nowUS)
	gate := &gated{regionStore: s}
	two.keeper = gate // it reads before the other one swaps
	gate.after = func() {
		r, err := one.Edit(t.Context(), quota.Edit{Override: l("a", 7), IfNone: true})
		if err != nil || r.Refused {
			t.Fatalf("%+v %v", r, err)
		}
	}
	r, err := two.Edit(t.Context(), quota.Edit{Override: l("a", 7), IfNone: true})
	if err != nil || !r.Refused {
		t.Errorf("both were carried out: %+v, %v", r, err)
	}
}

// Whatever version another region claims, each later edit replaces it here and elsewhere, and what a process writes others read.
func TestLargestCounter(t *testing.T) {
	for _, wallUS := range []int64{0, nowUS, nowUS + maxAhead.Microseconds() - 4, nowUS + maxAhead.Microseconds() + 1, 1<<52 - 1} {
		here, there := newStore(), newStore()
		p, peer := alone(t, here, nowUS), alone(t, there, nowUS)
		claimed := l("a", 7)
		claimed.Version = quota.OverrideVersion{Counter: 1<<52 - 1, WallUS: wallUS, Region: "zz"}
		text := string(claimed.AppendText(nil))
		for _, f := range []*follower{p, peer} {
			o, err := quota.ParseOverride("a", text)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.mergeOne(t.Context(), "zz", o); errors.Is(err, errAhead) != (wallUS > nowUS+maxAhead.Microseconds()) {
				t.Errorf("a version of %d is merged with %v", wallUS, err)
			}
		}
		for units := int64(8); units < 12; units++ {
			if _, err := p.Edit(t.Context(), quota.Edit{Override: l("a", units)}); err != nil {
				t.Fatal(err)
			}
			o, err := quota.ParseOverride("a", here.texts["a"])
			if err != nil {
				t.Fatalf("%q: %v", here.texts["a"], err)
			}
			if err := peer.mergeOne(t.Context(), "eu", o); err != nil {
				t.Errorf("the peer refuses %q: %v", here.texts["a"], err)
			}
			if got := peer.table.get("a").Describe(); got != fmt.Sprint("l ", units) {
				t.Errorf("after an edit to %d the peer has %s", units, got)
			}
		}
	}
}

// Two equal edits at once both hear of the regions that have it.
func TestEqualEditsWaitBoth(t *testing.T) {
	s := newStore()
	p := alone(t, s, nowUS)
	var sends atomic.Int64
	both := make(chan struct{})
	us := quota.Process{Region: "us"}
	p.Connect(Peers{
		Self: quota.Process{Region: "eu"}, Regions: func() []string { return []string{"eu", "us"} }, Live: func() []quota.Process { return []quota.Process{us} },
		Send: func([]byte) bool {
			if sends.Add(1) == 2 {
				close(both)
			}
			<-both
			return true
		},
	})
	o := l("a", 7)
	o.Version = quota.OverrideVersion{Counter: 1, WallUS: nowUS, Region: "eu"}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for _, r := range p.publish(t.Context(), &o, string(o.AppendText(nil))) {
				if r.Result != quota.EditApplied {
					t.Errorf("%s: %s", r.Region, r.Result)
				}
			}
		})
	}
	<-both
	p.acknowledged("us", fmt.Sprintf("%x", versionHash(&o)))
	wg.Wait()
}

// What is edited while its tombstone is being forgotten stays known.
func TestEditedWhileForgotten(t *testing.T) {
	s := newStore()
	old := alone(t, s, nowUS)
	for _, deleted := range []bool{false, true} {
		o := l("a", 7)
		if o.Deleted = deleted; deleted {
			o.Limits = nil
		}
		if _, err := old.Edit(t.Context(), quota.Edit{Override: o}); err != nil {
			t.Fatal(err)
		}
	}
	p := alone(t, s, nowUS+quota.OverrideKept.Microseconds()+1)
	p.loaded.Store(true)
	p.table.fold(old.table.get("a"))
	tombstone, text := p.table.get("a"), map[string]string{"a": s.texts["a"]}
	if _, err := p.Edit(t.Context(), quota.Edit{Override: l("a", 9)}); err != nil {
		t.Fatal(err)
	}
	if err := p.settle(t.Context(), []*quota.Override{tombstone}, text, p.o.TimeUS(), new(atomic.Bool)); err != nil {
		t.Fatal(err)
	}
	if got := p.table.get("a"); got.Describe() != "l 9" || s.texts["a"] == "" {
		t.Errorf("known is %s, kept %q", got.Describe(), s.texts["a"])
	}
}

// What a region acknowledges is kept in its store, also where that failed before or a sibling came between.
func TestAcknowledgedIsKept(t *testing.T) {
	for _, fails := range []bool{true, false} {
		s := newStore()
		p := alone(t, s, nowUS)
		versions := make([]*quota.Override, 4)
		for i := range versions {
			o := l("a", int64(i))
			o.Version = quota.OverrideVersion{Counter: int64(i + 1), WallUS: nowUS, Region: "us"}
			versions[i] = &o
		}
		merge := func(f *follower, o *quota.Override) error { return f.mergeOne(t.Context(), "us", o) }
		if err := merge(p, versions[0]); err != nil {
			t.Fatal(err)
		}
		between := &gated{regionStore: s, fails: fails, after: func() {
			if err := merge(alone(t, s, nowUS), versions[1]); err != nil {
				t.Error(err)
			}
		}}
		p.keeper = between
		if err := merge(p, versions[2]); (err != nil) != fails {
			t.Fatalf("the first attempt: %v", err)
		}
		if text := s.texts["a"]; !fails && !holds(text, versions[2]) {
			t.Errorf("it acknowledged %v at once and keeps %q", versions[2].Version, text)
		}
		between.fails = false
		if err := merge(p, versions[2]); err != nil {
			t.Fatal(err)
		}
		if want := string(versions[2].AppendText(nil)); s.texts["a"] != want {
			t.Errorf("it acknowledged %q and keeps %q", want, s.texts["a"])
		}
	}
}

// gated calls after once something was read.
type gated struct {
	*regionStore
	after func()
	fails bool // to swap
}

func (g *gated) swap(ctx context.Context, edit bool, all ...replacement) ([]bool, error) {
	if g.fails {
		return nil, errors.New("away")
	}
	return g.regionStore.swap(ctx, edit, all...)
}

func (g *gated) read(ctx context.Context, tenants ...string) ([]string, error) {
	texts, err := g.regionStore.read(ctx, tenants...)
	if after := g.after; after != nil {
		g.after = nil
		after()
	}
	return texts, err
}
