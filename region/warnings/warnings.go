package warnings

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
)

// When a warning is due.
const (
	// logUnitBytes is what one unit takes in a sliding log, about.
	logUnitBytes = 10
	// heavyLog is how large the log of one partition may be, in bytes, before an
	// operator should have chosen it on purpose.
	heavyLog = 100_000
	// shortGlobal is the window below which usage of other regions, which comes
	// every 100 ms over tens to hundreds of milliseconds, arrives too late.
	shortGlobal = 2 * time.Second
	// shortBound is the window below which loans between regions, 120 ms apart each way, come
	// too late for a limit with max_overshoot: ten round trips.
	shortBound = 10 * 2 * tripUS * time.Microsecond
	// tripUS is one of these ways.
	tripUS = 120_000
	// longBound is the window from which on the loss of a region's share is felt for hours.
	longBound = time.Hour
)

// topology collects warnings of one.
type topology struct {
	*region.Topology
	quota.FieldErrors
}

// Of returns what is allowed and probably not meant, with pointers as in topology.yaml. It expects a Topology without mistakes.
func Of(top *region.Topology) []quota.FieldError {
	t := topology{Topology: top}
	t.regions()
	used := map[string]bool{}
	for _, tenant := range t.Tenants.Listed {
		used[tenant.Policy] = true
	}
	if d := t.Tenants.Default; d != nil {
		used[d.Policy] = true
	}
	for _, policies := range policyValues(top) {
		for _, name := range policies {
			used[name] = true
		}
	}
	if t.ForwardAuth != nil {
		t.forwardAuth()
	}
	for i := range t.RLS.Domains {
		if d := &t.RLS.Domains[i]; d.PolicyFrom != nil {
			t.descriptorPolicy(d)
		}
	}
	for i := range t.Policies {
		p, at := &t.Policies[i], quota.Item("/policies", i)
		t.logs(p, at)
		t.bound(p, at)
		for j := range p.Limits {
			t.global(&p.Limits[j], quota.Item(at+"/limits", j))
		}
		t.When(!used[p.Name], at+"/name", "no tenant has policy %q; only a check that names it will use it", p.Name)
	}
	t.When(len(t.RLS.Domains) > 0 && t.RLS.Compat.GRPC == "" && !slices.ContainsFunc(t.Regions, func(g region.Region) bool { return g.GRPC != "" }), "/rls/domains",
		"no region has a listener `grpc`, so no gateway can ask for them; set it, or start regiond with --grpc")
	return t.FieldErrors
}

// regions finds two regions on one Redis, which would write the same keys and
// count each other's requests as their own and as a peer's, and regions that no
// bus joins to the others, which would hold to their share of a global limit for ever.
func (t *topology) regions() {
	owner := map[string]string{}
	external := slices.ContainsFunc(t.Regions, func(g region.Region) bool { return !g.NATS.Embedded })
	for i := range t.Regions {
		g, at := &t.Regions[i], quota.Item("/regions", i)
		for j, addr := range g.Redis.Addrs {
			if g.Redis.Mode == quota.RedisSentinel {
				break // sentinels may watch the stores of several regions
			}
			other, taken := owner[addr]
			t.When(taken, quota.Item(at+"/redis/addrs", j),
				"%s is the store of region %q too; regions that share one count each other's requests twice", quota.Clip(addr), other)
			owner[addr] = g.Name
		}
		switch {
		case len(t.Regions) < 2 || !g.NATS.Embedded:
		case g.NATS.Gateway == "":
			t.Add(at+"/name", "region %s has an embedded NATS server and no address for its peers, so none receives its messages; "+
				"give it gossip with a key_file, or nats: {urls: …}", g.Name)
		case external:
			t.Add(at+"/name", "region %s has an embedded NATS server and others have urls: the two kinds are not connected", g.Name)
		}
	}
}

// logs warns once per partition, at the largest of the limits that share its
// log.
func (t *topology) logs(p *quota.Policy, at string) {
	for j := range p.Limits {
		l := &p.Limits[j]
		larger := func(o quota.Limit) bool {
			return o.Algorithm == quota.SlidingLog && quota.SamePartition(&o, l) &&
				(o.Units > l.Units || o.Units == l.Units && o.Name < l.Name)
		}
		if l.Algorithm != quota.SlidingLog || l.Units*logUnitBytes <= heavyLog || slices.ContainsFunc(p.Limits, larger) {
			continue
		}
		whose := "each tenant"
		if len(l.By) > 0 {
			whose += " and each value of " + strings.Join(l.By, ", ")
		}
		t.Add(quota.Item(at+"/limits", j)+"/units",
			"a log of %d units takes about %d kB for %s; sliding_window takes two counters and is not exact",
			l.Units, l.Units*logUnitBytes/1000, whose)
	}
}

func (t *topology) global(l *quota.Limit, at string) {
	units, bounded := l.Bound()
	admits := "only what the other regions lend it"
	if len(t.Regions) < 2 {
		admits = "nothing"
	}
	if bounded && l.Calendar != nil && l.Window > longBound {
		t.Add(at+"/max_overshoot", "a region that loses its Redis's data counts its own share as used until the %s is over, and admits "+
			"meanwhile %s: use persistence and a replica", l.Calendar.Unit, admits)
	}
	t.When(bounded && l.Calendar == nil && l.Window+l.HeldFor > longBound, at+"/max_overshoot", "a region that loses its Redis's data counts its own share as used for %s, and admits meanwhile %s: "+
		"use persistence and a replica", quota.WindowText(time.Duration(loan.TermsOfLimit(l).Keep()*1000).Round(time.Minute)), admits)
	if l.Scope != quota.ScopeGlobal || len(t.Regions) < 2 {
		return
	}
	switch {
	case !bounded:
		units = l.Units
		t.When(l.Window < shortGlobal, at+"/per", "a global window of %v lasts only a few round trips between regions: "+
			"they will learn of each other's use too late; use 2s or more, or scope: region", l.Window)
	case l.Window < shortBound:
		t.Add(at+"/per", "a window of %v with max_overshoot lasts only a few round trips between regions: of one of 1s about 99 %% "+
			"can be used while the load is steady, 81 %% when it moves between regions, 44 %% of a burst in one region; use %v or more",
			l.Window, shortBound)
	}
	if bounded && l.Calendar == nil {
		t.few(l, units, at)
		return
	}
	floor := region.FloorOf(t.Weights())
	without, _ := t.those(func(_ int, g *region.Region) bool { return floor.Share(g.Name, units) < 1 })
	t.When(without != "", at+"/units", "%d divided by weight leaves less than one unit for %s: "+
		"a region may then admit nothing while it cannot see the others", units, without)
}

// few says what becomes of few units, or of costs that are large for them, of a bounded limit.
func (t *topology) few(l *quota.Limit, units int64, at string) {
	shares := region.Shares(t.Weights(), units)
	planner := loan.Planner{Terms: loan.TermsOfLimit(l), Regions: len(t.Regions), Trip: tripUS}
	none, _ := t.those(func(i int, _ *region.Region) bool { return shares[i] < 1 })
	t.When(none != "", at+"/units", "%d divided by weight leaves no share for %s: where all are short, regions take turns of a few windows; "+
		"a region without a share admits nothing while it cannot see the others", units, none)
	stays := slices.ContainsFunc(shares, func(share int64) bool { return planner.Remembers(share) > 0 })
	t.When(stays && none == "", at+"/units", "the smallest share, %d, stays where it is asked for: with %d regions and windows of %v lending it "+
		"costs more than it brings, so even load uses about as much as of fixed shares", slices.Min(shares), len(shares), l.Window)
	if t.ForwardAuth == nil {
		return
	}
	var dearest quota.Route
	for _, r := range t.ForwardAuth.Routes {
		if r.Cost > dearest.Cost && r.Cost <= units {
			dearest = r
		}
	}
	short, _ := t.those(func(i int, _ *region.Region) bool { return shares[i] < dearest.Cost })
	t.When(short != "" && dearest.Cost > 1, at+"/units", "route %q costs %d, more than the share of %s: what is missing is borrowed there, "+
		"and the route is denied while the others cannot be seen", dearest.Name, dearest.Cost, short)
}

// bound warns of a policy that admits beyond the bound of its limits while Redis is
// away or busy.
func (t *topology) bound(p *quota.Policy, at string) {
	bounded := slices.IndexFunc(p.Limits, func(l quota.Limit) bool { return l.MaxOvershoot > 0 })
	if bounded < 0 {
		return
	}
	name := p.Limits[bounded].Name
	t.When(p.OnStoreLoss != quota.FailClosed, at+"/on_store_loss",
		"%s suspends the max_overshoot of limit %q while Redis is away; closed keeps it", p.OnStoreLoss, name)
	t.When(p.OnOverload == quota.OverloadOpen, at+"/on_overload",
		"open suspends the max_overshoot of limit %q while Redis is too busy; shed keeps it", name)
}

// those names the regions that f holds for, "" for none, and returns the place of the first one.
func (t *topology) those(f func(i int, g *region.Region) bool) (names string, first int) {
	var all []string
	for i := range t.Regions {
		if f(i, &t.Regions[i]) {
			all, first = append(all, t.Regions[i].Name), cmp.Or(first, i+1)
		}
	}
	return strings.Join(all, ", "), first - 1
}
