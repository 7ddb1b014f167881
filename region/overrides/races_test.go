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
	v.keeper = s
	return &follower{Overlay: v, at: -1}
}

// regionStore is a region's Redis: it outlives processes, and may be emptied.
type regionStore struct {
	*memory
	log []string
}

func newStore() *regionStore { return &regionStore{memory: newMemory()} }

func (s *regionStore) announce(_ context.Context, tenant string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, tenant)
	return nil
}

func (s *regionStore) edits(_ context.Context, at int64) ([]string, int64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(len(s.log))
	if at > n {
		return nil, n, false, nil
	}
	return s.log[at:], n, true, nil
}

// empty forgets all, as a Redis without persistence that restarts.
func (s *regionStore) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := newMemory()
	s.texts, s.lines, s.log = fresh.texts, fresh.lines, nil
}

// faulty is a keeper with something that happens before each call, which fails with its error.
type faulty struct {
	keeper
	before func(call string) error
}

func (f *faulty) read(ctx context.Context, tenants ...string) ([]string, error) {
	if err := f.before("read"); err != nil {
		return nil, err
	}
	return f.keeper.read(ctx, tenants...)
}

func (f *faulty) swap(ctx context.Context, edit bool, all ...replacement) ([]bool, error) {
	if err := f.before("swap"); err != nil {
		return nil, err
	}
	return f.keeper.swap(ctx, edit, all...)
}

func (f *faulty) scan(ctx context.Context, slice int, each func(tenant, text string)) error {
	if err := f.before("scan"); err != nil {
		return err
	}
	return f.keeper.scan(ctx, slice, each)
}

func (f *faulty) announce(ctx context.Context, tenant string) error {
	if err := f.before("announce"); err != nil {
		return err
	}
	return f.keeper.announce(ctx, tenant)
}

func (f *faulty) edits(ctx context.Context, at int64) (tenants []string, newest int64, whole bool, err error) {
	if err := f.before("edits"); err != nil {
		return nil, 0, false, err
	}
	return f.keeper.edits(ctx, at)
}

// fail has a call fail whenever it is due.
func fail(call string, due func() bool) func(string) error {
	return func(name string) error {
		if name == call && due() {
			return errors.New("away")
		}
		return nil
	}
}

func always() bool { return true }

// text is what is kept of a tenant, and count of how many something is.
func (s *regionStore) text(tenant string) string { return s.texts[sliceOf(tenant)][tenant] }

func (s *regionStore) count() (n int) {
	for _, texts := range s.texts {
		n += len(texts)
	}
	return n
}

// sent is a payload on its way between two of several processes.
type sent struct {
	from, to int
	payload  []byte
}

// mergeOne has a process take one override of another region in.
func (f *follower) mergeOne(ctx context.Context, from string, o *quota.Override) error {
	a := &arrival{Override: o, text: o.Text()}
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
	first := sync.OnceFunc(func() {
		r, err := one.Edit(t.Context(), quota.Edit{Override: l("a", 7), IfNone: true})
		if err != nil || r.Refused {
			t.Errorf("%+v %v", r, err)
		}
	})
	two.keeper = &faulty{s, fail("swap", func() bool { first(); return false })} // it has read before
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
		text := claimed.Text()
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
			o, err := quota.ParseOverride("a", here.text("a"))
			if err != nil {
				t.Fatalf("%q: %v", here.text("a"), err)
			}
			if err := peer.mergeOne(t.Context(), "eu", o); err != nil {
				t.Errorf("the peer refuses %q: %v", here.text("a"), err)
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
			for _, r := range p.publish(t.Context(), &o, o.Text()) {
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
	tombstone, text := p.table.get("a"), map[string]string{"a": s.text("a")}
	if _, err := p.Edit(t.Context(), quota.Edit{Override: l("a", 9)}); err != nil {
		t.Fatal(err)
	}
	if err := p.settle(t.Context(), []*quota.Override{tombstone}, text, p.o.TimeUS(), new(atomic.Bool)); err != nil {
		t.Fatal(err)
	}
	if got := p.table.get("a"); got.Describe() != "l 9" || s.text("a") == "" {
		t.Errorf("known is %s, kept %q", got.Describe(), s.text("a"))
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
		between := sync.OnceFunc(func() {
			if err := merge(alone(t, s, nowUS), versions[1]); err != nil {
				t.Error(err)
			}
		})
		p.keeper = &faulty{s, fail("swap", func() bool { between(); return fails })}
		if err := merge(p, versions[2]); (err != nil) != fails {
			t.Fatalf("the first attempt: %v", err)
		}
		if text := s.text("a"); !fails && !holds(text, versions[2]) {
			t.Errorf("it acknowledged %v at once and keeps %q", versions[2].Version, text)
		}
		p.keeper = s
		if err := merge(p, versions[2]); err != nil {
			t.Fatal(err)
		}
		if want := versions[2].Text(); s.text("a") != want {
			t.Errorf("it acknowledged %q and keeps %q", want, s.text("a"))
		}
	}
}
