package region

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// Above and below what a warning is due.
const (
	// logUnitBytes is what one unit takes in a sliding log, about.
	logUnitBytes = 10
	// heavyLog is the log of one partition that an operator should have chosen
	// and not happened upon, in bytes.
	heavyLog = 100_000
	// shortGlobal is the window below which usage of other regions, which comes
	// every 100 ms over tens to hundreds of milliseconds, arrives too late.
	shortGlobal = 2 * time.Second
)

// Warnings returns what is allowed and probably not meant, with pointers as in
// topology.yaml. It expects a Topology without mistakes.
func (t *Topology) Warnings() []quota.FieldError {
	var ps problems
	t.warnSharedStores(&ps)
	t.warnUnheard(&ps)
	for i := range t.Policies {
		p, at := &t.Policies[i], item("/policies", i)
		warnLogs(&ps, p, at)
		for j := range p.Limits {
			t.warnGlobal(&ps, &p.Limits[j], item(at+"/limits", j))
		}
	}
	t.warnUnused(&ps)
	if t.ForwardAuth != nil {
		t.warnForwardAuth(&ps)
	}
	return ps
}

// warnSharedStores finds two regions on one Redis: both would write the same
// keys, and count each other's requests as their own and as a peer's.
func (t *Topology) warnSharedStores(ps *problems) {
	owner := map[string]string{}
	for i := range t.Regions {
		g := &t.Regions[i]
		if g.Redis.Mode == RedisSentinel {
			continue // sentinels may watch the stores of several regions
		}
		for j, addr := range g.Redis.Addrs {
			if other, taken := owner[addr]; taken {
				ps.add(item(item("/regions", i)+"/redis/addrs", j),
					"%s is the store of region %q too; regions that share one count each other's requests twice", clip(addr), other)
			}
			owner[addr] = g.Name
		}
	}
}

// warnUnheard finds regions that no bus joins to the others: each would hold to
// its part of a global limit for ever.
func (t *Topology) warnUnheard(ps *problems) {
	if len(t.Regions) < 2 {
		return
	}
	embedded := slices.ContainsFunc(t.Regions, func(g Region) bool { return g.NATS.Embedded })
	external := slices.ContainsFunc(t.Regions, func(g Region) bool { return !g.NATS.Embedded })
	for i := range t.Regions {
		g, at := &t.Regions[i], item("/regions", i)
		switch {
		case !g.NATS.Embedded:
		case g.NATS.Gateway == "":
			ps.add(at+"/name", "region %s has an embedded NATS server and no address for its peers, so nobody hears it; "+
				"give it gossip with a key_file, or nats: {urls: …}", g.Name)
		case embedded && external:
			ps.add(at+"/name", "region %s has an embedded NATS server and others have urls: the two kinds do not hear each other", g.Name)
		}
	}
}

// warnLogs speaks once per partition, at the largest of the limits that share
// its log.
func warnLogs(ps *problems, p *quota.Policy, at string) {
	for j := range p.Limits {
		l := &p.Limits[j]
		if l.Algorithm != quota.SlidingLog || l.Units*logUnitBytes <= heavyLog {
			continue
		}
		if slices.ContainsFunc(p.Limits, func(o quota.Limit) bool { return outweighs(&o, l) }) {
			continue
		}
		whose := "each tenant"
		if len(l.By) > 0 {
			whose += " and each value of " + strings.Join(l.By, ", ")
		}
		ps.add(item(at+"/limits", j)+"/units",
			"a log of %d units takes about %d kB for %s; sliding_window takes two counters and is not exact",
			l.Units, l.Units*logUnitBytes/1000, whose)
	}
}

func outweighs(o, l *quota.Limit) bool {
	if o.Algorithm != quota.SlidingLog || !quota.SamePartition(o, l) {
		return false
	}
	return o.Units > l.Units || o.Units == l.Units && o.Name < l.Name
}

func (t *Topology) warnGlobal(ps *problems, l *quota.Limit, at string) {
	if l.Scope != quota.ScopeGlobal || len(t.Regions) < 2 {
		return
	}
	if l.Window < shortGlobal {
		ps.add(at+"/per", "a global window of %v lasts only a few round trips between regions: "+
			"they will learn of each other's use too late; use 2s or more, or scope: region", l.Window)
	}
	var without []string
	var total int64
	for i := range t.Regions {
		total += t.Regions[i].Weight
	}
	for i := range t.Regions {
		// Floor(units·weight/total) < 1, without the product.
		if w := t.Regions[i].Weight; l.Units < (total+w-1)/w {
			without = append(without, t.Regions[i].Name)
		}
	}
	if len(without) > 0 {
		ps.add(at+"/units", "%d divided by weight leaves less than one unit for %s: "+
			"a region may then admit nothing while it cannot see the others", l.Units, strings.Join(without, ", "))
	}
}

func (t *Topology) warnUnused(ps *problems) {
	used := map[string]bool{}
	if d := t.Tenants.Default; d != nil {
		used[d.Policy] = true
	}
	for _, tenant := range t.Tenants.Listed {
		used[tenant.Policy] = true
	}
	for i := range t.Policies {
		if name := t.Policies[i].Name; !used[name] {
			ps.add(item("/policies", i)+"/name", "no tenant has policy %q; only a check that names it will use it", name)
		}
	}
}

func (t *Topology) warnForwardAuth(ps *problems) {
	f := t.ForwardAuth
	counted := map[string]bool{}
	for i := range t.Policies {
		for _, name := range t.Policies[i].Dimensions() {
			counted[name] = true
		}
	}
	byAddress := false
	for _, name := range slices.Sorted(maps.Keys(f.Dimensions)) {
		if !counted[name] {
			ps.add(under("/forward_auth/dimensions", name), "no policy counts or asks by dimension %q", name)
		}
		byAddress = byAddress || f.Dimensions[name].ClientIP
		if f.Dimensions[name].ClientIP && len(f.TrustedProxies) == 0 {
			ps.add(under("/forward_auth/dimensions", name)+"/client_ip",
				"without trusted_proxies this is the address of whoever connects here, which is the gateway's")
		}
	}
	for i, p := range f.TrustedProxies {
		if byAddress && p.Bits() == 0 {
			ps.add(item("/forward_auth/trusted_proxies", i), "%s trusts everyone: a client can choose its own address", p)
		}
	}
	warnShadowed(ps, f.Routes)
}

// warnShadowed finds routes that no request reaches: a stricter limit behind
// one would never apply.
func warnShadowed(ps *problems, routes []Route) {
	for i := range routes {
		before := slices.IndexFunc(routes[:i], func(r Route) bool { return r.covers(&routes[i]) })
		if before >= 0 {
			ps.add(item("/forward_auth/routes", i), "route %q is never reached: route %q before it matches all of it",
				routes[i].Name, routes[before].Name)
		}
	}
}

// covers reports whether every request that o matches is matched by r too.
func (r *Route) covers(o *Route) bool {
	if len(r.Methods) > 0 {
		missing := func(m string) bool { return !slices.Contains(r.Methods, m) }
		if len(o.Methods) == 0 || slices.ContainsFunc(o.Methods, missing) {
			return false
		}
	}
	stem, tree := strings.CutSuffix(r.Path, "/*")
	return r.Path == o.Path || tree && (o.Path == stem || strings.HasPrefix(o.Path, stem+"/"))
}
