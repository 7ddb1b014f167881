package view_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
	"github.com/regiond/regiond/sync/wire"
)

// storeUS is what every region's store shows when these tests begin: a moment at which
// buckets of all windows in them begin.
const storeUS = int64(1_790_000_040_000_000)

var two = []quota.Weight{{Region: "eu-west", Weight: 1}, {Region: "us-east", Weight: 1}}

// counting is one of two regions that count on each other.
type counting struct {
	*testing.T
	self      quota.Process
	now       *time.Duration
	top       *region.Topology
	members   *members.Table
	peer      members.Member
	manager   *view.Manager
	ceilings  *view.Ceilings
	refreshed time.Duration
}

// newCounting is both regions, with a limit in force.
func newCounting(t *testing.T, now *time.Duration, l *quota.Limit) (eu, us *counting) {
	regions := make([]*counting, 2)
	for i, w := range two {
		self := quota.Process{Region: w.Region, Instance: "one", Boot: 2}
		c := &counting{T: t, self: self, now: now, top: withLimit(l), members: members.New(self), refreshed: *now}
		c.manager, c.ceilings = manage(t, c.self, now, c.top, view.ManagerOptions{Members: c.members}, wire.NewKey(nil, "test"))
		c.peer = healthy(two[1-i].Region, "one", *now, "eu-west", "us-east")
		c.peer.Key = wire.NewKey(nil, "test").Fingerprint()
		put(c.members, c.peer)
		regions[i] = c
	}
	return regions[0], regions[1]
}

func withLimit(limits ...*quota.Limit) *region.Topology {
	top := &region.Topology{Regions: []region.Region{{Name: "eu-west", Weight: 1}, {Name: "us-east", Weight: 1}}}
	for _, l := range limits {
		top.Policies = append(top.Policies, quota.Policy{Name: "standard", Limits: []quota.Limit{*l}})
	}
	return top
}

func (c *counting) timeUS() int64 { return storeUS + c.now.Microseconds() }

func (c *counting) policy() (*quota.Policy, *quota.Limit) {
	p := &c.top.Policies[0]
	return p, &p.Limits[0]
}

// reload puts another limit in force, of which an override gives no more units.
func (c *counting) reload(l *quota.Limit) {
	c.top = withLimit(l)
	c.top.MaxOverride = 1
	c.manager.Configure(c.top)
}

func counterOf(l *quota.Limit) *quota.CounterKey {
	return &quota.CounterKey{Tenant: "acme", Policy: "standard", Limit: l.Name, Partition: "::", WindowUS: l.WindowUS()}
}

// admit has the region's store count units in the present bucket of the limit in force.
func (c *counting) admit(units int64) {
	p, l := c.policy()
	total := quota.Counter{Bucket: c.timeUS() / l.WindowUS(), Generation: storeUS, Units: units}
	c.ceilings.Record(c.Context(), p, l, counterOf(l), total, quota.Gauge{}, c.timeUS())
}

// publish has the other region merge what this one has not published yet.
func (c *counting) publish(to *counting) {
	if err := to.ceilings.Ledger().Fold(c.self.Region, c.timeUS(), *c.now, c.ceilings.Ledger().Take(100, true, 1), false); err != nil {
		c.Fatal(err)
	}
}

// ceiling is the region's ceiling in the view in force.
func (c *counting) ceiling() quota.Ceiling {
	p, l := c.policy()
	return c.ceilings.Ceiling(p, l, counterOf(l), false, 0)
}

// wantGlobal checks the ceiling of the region while it counts on the other.
func (c *counting) wantGlobal(when string, want int64) {
	c.Helper()
	until := *c.now
	for at := c.refreshed; ; at = min(at+view.PausedAfter, until) {
		*c.now, c.peer.ReceivedAt, c.peer.AckedAt = at, at, at
		put(c.members, c.peer)
		c.manager.Refresh()
		if at == until {
			break
		}
	}
	c.refreshed = until
	if got := c.ceiling(); got.Mode != quota.ModeGlobal || got.Units != want {
		c.Errorf("%s, the ceiling of %s is %d in mode %v, want %d", when, c.self.Region, got.Units, got.Mode, want)
	}
}

func limitOf(window time.Duration) *quota.Limit {
	return &quota.Limit{Name: "sustained", Units: 600, Window: window, Scope: quota.ScopeGlobal}
}

// windowReloads are the changes of a limit that give its counters another window.
var windowReloads = []struct {
	name          string
	before, after *quota.Limit
}{
	{"a longer window", limitOf(20 * time.Second), limitOf(time.Minute)},
	{"a shorter window", limitOf(time.Minute), limitOf(20 * time.Second)},
}

// While a reload that changes the window has reached one region and not the
// other, and right after it has reached both, each counts all that the other has used. Usage
// for both windows is added up without allocating.
func TestReloadCountsAllUsage(t *testing.T) {
	for _, row := range windowReloads {
		t.Run(row.name, func(t *testing.T) {
			now := time.Second
			eu, us := newCounting(t, &now, row.before)
			eu.admit(400)
			eu.publish(us)
			us.wantGlobal("before", 200)

			eu.reload(row.after)
			us.admit(50)
			us.publish(eu)
			eu.wantGlobal("reloaded alone", 550)
			us.wantGlobal("with the old file", 200)
			us.admit(70)
			us.publish(eu)
			eu.wantGlobal("when the old file goes on", 530)

			us.reload(row.after)
			us.wantGlobal("right after its own reload", 200)
			eu.wantGlobal("when both have reloaded", 530)
			p, l := eu.policy()
			key := counterOf(l)
			if n := testing.AllocsPerRun(100, func() { eu.ceilings.Ceiling(p, l, key, false, 0) }); n > 0 {
				t.Errorf("a ceiling takes %v allocations, want none", n)
			}

			now += 2*time.Minute + time.Second
			us.wantGlobal("when all has aged out", 600)
			eu.wantGlobal("when all has aged out", 600)
		})
	}
}

// What was used under a limit that was lowered since counts on, whatever is reloaded after that, for
// as long as its buckets do: where it was used it is still published, and elsewhere it leaves as
// it came.
func TestLoweredLimit(t *testing.T) {
	now := time.Second
	eu, us := newCounting(t, &now, limitOf(time.Minute))
	units := func(n int64) *quota.Limit {
		l := limitOf(time.Minute)
		l.Units = n
		return l
	}
	eu.admit(300)
	now += 30 * time.Second
	eu.admit(590)
	eu.reload(units(20))
	eu.admit(591)
	eu.publish(us)
	us.wantGlobal("while the other has lowered it", 9)
	now += 20 * time.Second
	eu.reload(units(10))
	eu.admit(592)
	eu.publish(us)
	us.reload(units(20))
	us.wantGlobal("lowered", 0)
	now += 20 * time.Second
	us.wantGlobal("when half of it has left", 0)
	us.reload(units(600))
	us.wantGlobal("as it was", 8)
	now += 3 * time.Minute
	us.wantGlobal("when all has aged out", 600)
}

// A process that starts with a new configuration publishes what its store still holds
// under the one before.
func TestRecoveryReadsOldWindows(t *testing.T) {
	for _, row := range windowReloads {
		t.Run(row.name, func(t *testing.T) {
			now := time.Second
			eu, us := newCounting(t, &now, row.after)
			stored := func(_ context.Context, yield func(quota.CounterKey, []quota.Counter, quota.Gauge, int64)) error {
				total := quota.Counter{Bucket: storeUS / row.before.WindowUS(), Generation: storeUS, Units: 400}
				yield(*counterOf(row.before), []quota.Counter{total}, quota.Gauge{}, eu.timeUS())
				return nil
			}
			view.NewCounterRecovery(stored, eu.ceilings, slog.New(slog.DiscardHandler)).Recover(t.Context())
			eu.publish(us)
			us.wantGlobal("with what was recovered", 200)
		})
	}
}
