package global_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/global"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/view"
	"github.com/regiond/regiond/sync/wire"
)

// storeUS is what every region's store shows when these tests begin: a moment at which
// buckets of all lengths in them begin.
const storeUS = int64(1_790_000_040_000_000)

// site is one region of two that see each other.
type site struct {
	*testing.T
	name, other string
	now         *time.Duration
	ceilings    *global.Ceilings
	top         *region.Topology
	viewer      *view.Viewer
	looked      time.Duration // when it last looked
}

// newSites are both regions, with a limit in force.
func newSites(t *testing.T, now *time.Duration, l *quota.Limit) (eu, us *site) {
	return newSite(t, "eu-west", "us-east", now, l), newSite(t, "us-east", "eu-west", now, l)
}

func newSite(t *testing.T, name, other string, now *time.Duration, l *quota.Limit) *site {
	s := &site{T: t, name: name, other: other, now: now, top: topologyOf(l), looked: *now}
	var err error
	s.ceilings, err = global.New(global.Options{
		Self: quota.Process{Region: name, Instance: "one", Boot: 1}, Now: func() time.Duration { return *now },
		TimeUS: s.timeUS, Key: wire.NewKey(nil, "test"), Topology: s.top,
	})
	if err != nil {
		t.Fatal(err)
	}
	weights := []quota.Weight{{Region: "eu-west", Weight: 1}, {Region: "us-east", Weight: 1}}
	s.viewer, err = view.New(view.Options{Self: name, Started: *now}, view.Topology{Weights: weights, Units: []int64{l.Units}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func topologyOf(l *quota.Limit) *region.Topology {
	return &region.Topology{
		Regions:  []region.Region{{Name: "eu-west", Weight: 1}, {Name: "us-east", Weight: 1}},
		Policies: []quota.Policy{{Name: "standard", Limits: []quota.Limit{*l}}},
	}
}

func (s *site) timeUS() int64 { return storeUS + s.now.Microseconds() }

func (s *site) policy() (*quota.Policy, *quota.Limit) {
	p := &s.top.Policies[0]
	return p, &p.Limits[0]
}

func (s *site) reload(l *quota.Limit) {
	s.top = topologyOf(l)
	s.ceilings.Configure(s.top)
}

// admits has the region's store hold so many units in the present bucket of the limit
// in force.
func (s *site) admits(units int64) {
	p, l := s.policy()
	total := quota.Counter{Bucket: s.timeUS() / l.BucketUS(), Generation: storeUS, Units: units}
	s.ceilings.Record(s.Context(), p, l, counterOf("acme", p.Name, l), total, s.timeUS())
}

// counterOf is the key of a tenant's usage counter.
func counterOf(tenant, policy string, l *quota.Limit) *quota.CounterKey {
	return &quota.CounterKey{Tenant: tenant, Policy: policy, Limit: l.Name, Partition: "::", BucketUS: l.BucketUS()}
}

// tells has another region hear what this one has not told yet.
func (s *site) tells(to *site) {
	if err := to.ceilings.Ledger().Fold(s.name, s.timeUS(), *s.now, s.ceilings.Ledger().Take(100, true)); err != nil {
		s.Fatal(err)
	}
}

// mayHold is the region's ceiling while it sees the other.
func (s *site) mayHold() int64 {
	hash := view.Hash([]quota.Weight{{Region: "eu-west", Weight: 1}, {Region: "us-east", Weight: 1}})
	var v *view.View
	for v == nil || s.looked < *s.now {
		s.looked = min(s.looked+view.FrozenAfter, *s.now)
		v, _ = s.viewer.Observe(view.Input{Now: s.looked, Processes: []view.Process{{
			Region: s.other, Instance: "one", Boot: 1, Heard: s.looked, Acked: s.looked, Beats: view.GoodBeats,
			Members: []string{"eu-west", "us-east"}, Topology: hash, Digested: true,
		}}})
	}
	s.ceilings.See(v)
	p, l := s.policy()
	c := s.ceilings.Ceiling(p, l, counterOf("acme", p.Name, l), false)
	if c.Mode != quota.ModeGlobal {
		s.Fatalf("%s is in mode %v, want global", s.name, c.Mode)
	}
	return c.Units
}

func (s *site) mustHold(when string, want int64) {
	s.Helper()
	if got := s.mayHold(); got != want {
		s.Errorf("%s, %s may hold %d, want %d", when, s.name, got, want)
	}
}

func limitOf(window time.Duration, buckets int) *quota.Limit {
	return &quota.Limit{Name: "sustained", Units: 600, Window: window, Scope: quota.ScopeGlobal, GlobalBuckets: buckets}
}

// reloads are the changes that give totals other lengths.
var reloads = []struct {
	name          string
	before, after *quota.Limit
}{
	{"finer buckets", limitOf(time.Minute, 0), limitOf(time.Minute, 11)},
	{"coarser buckets", limitOf(time.Minute, 11), limitOf(time.Minute, 0)},
	{"a longer window", limitOf(20*time.Second, 0), limitOf(time.Minute, 0)},
	{"a shorter window", limitOf(time.Minute, 0), limitOf(20*time.Second, 0)},
	{"another window in buckets of one length", limitOf(time.Minute, 7), limitOf(10*time.Second, 2)},
}

// TestReloadHidesNobody: while a reload that changes the length of buckets has reached
// one region and not the other, and right after it has reached both, each counts all
// that the other has used.
func TestReloadHidesNobody(t *testing.T) {
	for _, row := range reloads {
		t.Run(row.name, func(t *testing.T) {
			now := time.Second
			eu, us := newSites(t, &now, row.before)
			eu.admits(400)
			eu.tells(us)
			us.mustHold("before", 200)

			eu.reload(row.after)
			us.admits(50)
			us.tells(eu)
			eu.mustHold("reloaded alone", 550)
			us.mustHold("with the old file", 200)
			us.admits(70)
			us.tells(eu)
			eu.mustHold("when the old file goes on", 530)

			us.reload(row.after)
			us.mustHold("right after its own reload", 200)
			eu.mustHold("when all have reloaded", 530)

			now += 2*time.Minute + time.Second
			us.mustHold("when all has aged out", 600)
			eu.mustHold("when all has aged out", 600)
		})
	}
}

// What is admitted under the new lengths is added to what was under the old.
func TestReloadAddsUp(t *testing.T) {
	now := time.Second
	old, finer := limitOf(time.Minute, 0), limitOf(time.Minute, 11)
	eu, us := newSites(t, &now, old)
	eu.admits(400)
	eu.tells(us)
	eu.reload(finer)
	eu.admits(100)
	eu.tells(us)
	us.mustHold("with the old file", 100)
	us.reload(finer)
	us.mustHold("with the new file", 100)
}

// What a decision asks for costs no memory, also where usage comes in several lengths.
func TestCeilingAllocatesNothing(t *testing.T) {
	now := time.Second
	old, finer := limitOf(time.Minute, 0), limitOf(time.Minute, 11)
	eu, us := newSites(t, &now, old)
	eu.admits(400)
	eu.reload(finer)
	eu.admits(100)
	eu.tells(us)
	us.mustHold("told of both", 100)
	p, l := us.policy()
	total, held := counterOf("acme", p.Name, l), int64(0)
	if n := testing.AllocsPerRun(100, func() { held = us.ceilings.Ceiling(p, l, total, false).Units }); n > 0 || held != 100 {
		t.Errorf("%v allocations for a ceiling of %d, want none for 100", n, held)
	}
}

// TestRereadFindsOldLengths: a process that starts with a new configuration tells its
// peers what its store still holds under the one before.
func TestRereadFindsOldLengths(t *testing.T) {
	for _, row := range reloads {
		t.Run(row.name, func(t *testing.T) {
			now := time.Second
			eu, us := newSites(t, &now, row.after)
			held := func(_ context.Context, yield func(quota.CounterKey, []quota.Counter, int64)) error {
				total := quota.Counter{Bucket: storeUS / row.before.BucketUS(), Generation: storeUS, Units: 400}
				yield(*counterOf("acme", "standard", row.before), []quota.Counter{total}, eu.timeUS())
				return nil
			}
			global.NewRereads(held, eu.ceilings, slog.New(slog.DiscardHandler)).Read(t.Context())
			eu.tells(us)
			us.mustHold("told of it", 200)
		})
	}
}
