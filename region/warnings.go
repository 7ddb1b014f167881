package region

import (
	"cmp"
	"io/fs"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/internal/base/files"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
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

// Warnings returns what is allowed and probably not meant, with pointers as in
// topology.yaml. It expects a Topology without mistakes.
func (t *Topology) Warnings() []quota.FieldError {
	var ps problems
	t.warnRegions(&ps)
	used := map[string]bool{}
	for _, tenant := range t.Tenants.Listed {
		used[tenant.Policy] = true
	}
	if d := t.Tenants.Default; d != nil {
		used[d.Policy] = true
	}
	for _, policies := range t.policyValues() {
		for i := range t.Policies {
			used[t.Policies[i].Name] = used[t.Policies[i].Name] || policies == nil
		}
		for _, name := range policies {
			used[name] = true
		}
	}
	for i := range t.Policies {
		p, at := &t.Policies[i], quota.Item("/policies", i)
		warnLogs(&ps, p, at)
		t.warnBound(&ps, p, at)
		for j := range p.Limits {
			t.warnGlobal(&ps, &p.Limits[j], quota.Item(at+"/limits", j))
		}
		ps.When(!used[p.Name], at+"/name", "no tenant has policy %q; only a check that names it will use it", p.Name)
	}
	ps.When(len(t.RLS.Domains) > 0 && t.RLS.Compat.GRPC == "" && !slices.ContainsFunc(t.Regions, func(g Region) bool { return g.GRPC != "" }), "/rls/domains",
		"no region has a listener `grpc`, so no gateway can ask for them; set it, or start regiond with --grpc")
	if t.ForwardAuth != nil {
		t.warnForwardAuth(&ps)
	}
	for i := range t.RLS.Domains {
		t.RLS.Domains[i].warnPolicyFrom(&ps)
	}
	return ps.FieldErrors
}

// policyValues are the `policies` of each policy_from, nil for one that takes all.
func (t *Topology) policyValues() (all []map[string]string) {
	if f := t.ForwardAuth; f != nil && f.PolicyFrom != nil {
		all = append(all, f.PolicyFrom.Policies)
	}
	for i := range t.RLS.Domains {
		if from := t.RLS.Domains[i].PolicyFrom; from != nil {
			all = append(all, from.Policies)
		}
	}
	return all
}

// warnRegions finds two regions on one Redis, which would write the same keys and
// count each other's requests as their own and as a peer's, and regions that no
// bus joins to the others, which would hold to their share of a global limit for ever.
func (t *Topology) warnRegions(ps *problems) {
	owner := map[string]string{}
	embedded := slices.ContainsFunc(t.Regions, func(g Region) bool { return g.NATS.Embedded })
	external := slices.ContainsFunc(t.Regions, func(g Region) bool { return !g.NATS.Embedded })
	for i := range t.Regions {
		g, at := &t.Regions[i], quota.Item("/regions", i)
		for j, addr := range g.Redis.Addrs {
			if g.Redis.Mode == quota.RedisSentinel {
				break // sentinels may watch the stores of several regions
			}
			other, taken := owner[addr]
			ps.When(taken, quota.Item(at+"/redis/addrs", j),
				"%s is the store of region %q too; regions that share one count each other's requests twice", quota.Clip(addr), other)
			owner[addr] = g.Name
		}
		switch {
		case len(t.Regions) < 2 || !g.NATS.Embedded:
		case g.NATS.Gateway == "":
			ps.Add(at+"/name", "region %s has an embedded NATS server and no address for its peers, so none receives its messages; "+
				"give it gossip with a key_file, or nats: {urls: …}", g.Name)
		case embedded && external:
			ps.Add(at+"/name", "region %s has an embedded NATS server and others have urls: the two kinds are not connected", g.Name)
		}
	}
}

// warnLogs warns once per partition, at the largest of the limits that share its
// log.
func warnLogs(ps *problems, p *quota.Policy, at string) {
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
		ps.Add(quota.Item(at+"/limits", j)+"/units",
			"a log of %d units takes about %d kB for %s; sliding_window takes two counters and is not exact",
			l.Units, l.Units*logUnitBytes/1000, whose)
	}
}

func (t *Topology) warnGlobal(ps *problems, l *quota.Limit, at string) {
	units, bounded := l.Bound()
	admits := "only what the other regions lend it"
	if len(t.Regions) < 2 {
		admits = "nothing"
	}
	if bounded && l.Calendar != nil && l.Window > longBound {
		ps.Add(at+"/max_overshoot", "a region that loses its Redis's data counts its own share as used until the %s is over, and admits "+
			"meanwhile %s: use persistence and a replica", l.Calendar.Unit, admits)
	}
	ps.When(bounded && l.Calendar == nil && l.Window+l.HeldFor > longBound, at+"/max_overshoot", "a region that loses its Redis's data counts its own share as used for %s, and admits meanwhile %s: "+
		"use persistence and a replica", quota.WindowText(time.Duration(loan.TermsOfLimit(l).Keep()*1000).Round(time.Minute)), admits)
	if l.Scope != quota.ScopeGlobal || len(t.Regions) < 2 {
		return
	}
	switch {
	case !bounded:
		units = l.Units
		ps.When(l.Window < shortGlobal, at+"/per", "a global window of %v lasts only a few round trips between regions: "+
			"they will learn of each other's use too late; use 2s or more, or scope: region", l.Window)
	case l.Window < shortBound:
		ps.Add(at+"/per", "a window of %v with max_overshoot lasts only a few round trips between regions: of one of 1s about 99 %% "+
			"can be used while the load is steady, 81 %% when it moves between regions, 44 %% of a burst in one region; use %v or more",
			l.Window, shortBound)
	}
	if bounded && l.Calendar == nil {
		t.warnFew(ps, l, units, at)
		return
	}
	floor := FloorOf(t.Weights())
	without, _ := t.those(func(_ int, g *Region) bool { return floor.Share(g.Name, units) < 1 })
	ps.When(without != "", at+"/units", "%d divided by weight leaves less than one unit for %s: "+
		"a region may then admit nothing while it cannot see the others", units, without)
}

// warnFew says what becomes of few units, or of costs that are large for them, of a bounded limit.
func (t *Topology) warnFew(ps *problems, l *quota.Limit, units int64, at string) {
	shares := Shares(t.Weights(), units)
	planner := loan.Planner{Terms: loan.TermsOfLimit(l), Regions: len(t.Regions), Trip: tripUS}
	none, _ := t.those(func(i int, _ *Region) bool { return shares[i] < 1 })
	ps.When(none != "", at+"/units", "%d divided by weight leaves no share for %s: where all are short, regions take turns of a few windows; "+
		"a region without a share admits nothing while it cannot see the others", units, none)
	stays := slices.ContainsFunc(shares, func(share int64) bool { return planner.Remembers(share) > 0 })
	ps.When(stays && none == "", at+"/units", "the smallest share, %d, stays where it is asked for: with %d regions and windows of %v lending it "+
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
	short, _ := t.those(func(i int, _ *Region) bool { return shares[i] < dearest.Cost })
	ps.When(short != "" && dearest.Cost > 1, at+"/units", "route %q costs %d, more than the share of %s: what is missing is borrowed there, "+
		"and the route is denied while the others cannot be seen", dearest.Name, dearest.Cost, short)
}

// warnBound warns of a policy that admits beyond the bound of its limits while Redis is
// away or busy.
func (t *Topology) warnBound(ps *problems, p *quota.Policy, at string) {
	bounded := slices.IndexFunc(p.Limits, func(l quota.Limit) bool { return l.MaxOvershoot > 0 })
	if bounded < 0 {
		return
	}
	name := p.Limits[bounded].Name
	ps.When(p.OnStoreLoss != quota.FailClosed, at+"/on_store_loss",
		"%s suspends the max_overshoot of limit %q while Redis is away; closed keeps it", p.OnStoreLoss, name)
	ps.When(p.OnOverload == quota.OverloadOpen, at+"/on_overload",
		"open suspends the max_overshoot of limit %q while Redis is too busy; shed keeps it", name)
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
	for _, d := range f.Dimensions {
		at := under("/forward_auth/dimensions", d.Name)
		byAddress = byAddress || d.ClientIP
		ps.When(!counted[d.Name], at, "no policy counts or asks by dimension %q", d.Name)
		warnSecret(ps, at, d.Header, !d.Hash)
		ps.When(d.ClientIP && len(f.TrustedProxies) == 0, at+"/client_ip",
			"without trusted_proxies this is the address of the direct client, which is the gateway")
	}
	for i, p := range f.TrustedProxies {
		ps.When(byAddress && p.Bits() == 0, quota.Item("/forward_auth/trusted_proxies", i),
			"%s trusts every client to choose its own address", p)
	}
	warnSecret(ps, "/forward_auth/tenant/header", f.Tenant.Header, true)
	if f.PolicyFrom != nil {
		t.warnPolicyFrom(ps, f)
	}
	for i := range f.Routes { // a stricter limit behind a route that is never reached would never apply
		before := slices.IndexFunc(f.Routes[:i], func(r quota.Route) bool { return covers(&r, &f.Routes[i], !f.CaseSensitive) })
		if before >= 0 {
			ps.Add(quota.Item("/forward_auth/routes", i), "route %q is never reached: route %q before it matches all of it",
				f.Routes[i].Name, f.Routes[before].Name)
		}
	}
}

// warnPolicyFrom finds sources that no gateway fills, or that a client fills itself.
func (t *Topology) warnPolicyFrom(ps *problems, f *quota.ForwardAuth) {
	const at = "/forward_auth/policy_from"
	header := f.PolicyFrom.Header
	ps.When(ofClients(header), at+"/header", "clients send header %s themselves, and a gateway passes it on: whoever sends it chooses a policy; "+
		"use a header that the gateway sets from what it has verified, or metadata", header)
	ps.When(header != "" && header == f.Tenant.Header, at+"/header", "is the header of the tenant; list tenants under `tenants` with their policies instead")
	ps.When(header != "" && slices.ContainsFunc(f.Dimensions, func(d quota.DimensionSource) bool { return d.Header == header }), at+"/header",
		"is the header of a dimension, which a client may be free to choose; use one that only the gateway sets")
	ps.When(f.PolicyFrom.Metadata != "" && !slices.ContainsFunc(t.Regions, func(g Region) bool { return g.GRPC != "" }), at+"/metadata",
		"only ext_authz over gRPC brings metadata, and no region has a listener `grpc`; set it, or start regiond with --grpc")
}

// warnPolicyFrom finds keys whose values clients choose. What a gateway fills others with its own configuration says.
func (d *Domain) warnPolicyFrom(ps *problems) {
	if d.PolicyFrom == nil {
		return
	}
	at, key := d.At+"/policy_from/descriptor", d.PolicyFrom.Descriptor
	header := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(key, "_", "-"))
	ps.When(ofClients(header) || slices.Contains([]string{"remote_address", "masked_remote_address", "path", "query_match"}, key), at,
		"clients choose what descriptors have as %q, and so their policy; use a key that the gateway fills from what it has verified, "+
			"such as metadata of jwt_authn", quota.Clip(key))
	ps.When(slices.Contains(d.Tenant, key), at, "is a key of `tenant`; list tenants under `tenants` with their policies instead")
}

// ofClients reports whether a header is one that clients set and gateways pass on as it is, or with what they add.
func ofClients(header string) bool {
	return slices.Contains([]string{
		"Authorization", "Cookie", "Proxy-Authorization", "User-Agent", "Referer", "Origin", "From", "Forwarded", "X-Requested-With",
		"X-Api-Key", "Content-Type", "Range", "Te", "Via", "Traceparent", "Tracestate", "Baggage",
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Method", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Proto", "X-Forwarded-Uri",
	}, header) || slices.ContainsFunc([]string{"Accept", "If-", "Sec-", "X-Original-"}, func(prefix string) bool {
		return strings.HasPrefix(header, prefix)
	})
}

// warnSecret warns of a header whose value would be in Redis and in the log.
func warnSecret(ps *problems, at, header string, plain bool) {
	ps.When(plain && slices.Contains([]string{"Authorization", "Cookie", "Proxy-Authorization"}, header), at,
		"header %s is a secret that would be in Redis and in the log; count by a dimension of it with hash: true", header)
}

// covers reports whether every request that o matches is matched by r too; fold ignores
// case where r counts.
func covers(r, o *quota.Route, fold bool) bool {
	missing := func(method string) bool { return !r.MatchesMethod(method) }
	if len(r.Methods) > 0 && (len(o.Methods) == 0 || slices.ContainsFunc(o.Methods, missing)) {
		return false
	}
	stem, wide := strings.CutSuffix(o.Path, "/*")
	return (!wide || strings.HasSuffix(r.Path, "/*")) && r.MatchesPath(stem, fold && !r.Skip)
}

// Load reads a topology file. Its warnings are those of Parse, and what the file leaves
// open to others: listeners that they reach without showing who they are, and secrets on
// this machine that all its users may read. The error is an *Invalid or of reading.
func Load(name string) (*Topology, []Problem, error) {
	src, err := files.Read(name)
	if err != nil {
		return nil, nil, err
	}
	return parseWith(name, src, func(t *Topology) []quota.FieldError { return append(t.Warnings(), t.exposures(os.Stat)...) })
}

// exposures are warnings with pointers as in topology.yaml. Files that are not here are
// not looked at: a topology is validated on other machines too.
func (t *Topology) exposures(stat func(string) (fs.FileInfo, error)) []quota.FieldError {
	var ps problems
	const (
		api = "whoever reaches the API of %s can spend and report for every tenant; " +
			"set access.tokens_file or client_ca_file, or listen on loopback"
		admin = "whoever reaches the admin listener of %s can delete usage and read profiles; " +
			"set access.admin_tokens_file or admin_client_ca_file, or listen on loopback"
		saysItself = "whoever reaches the API of %s says itself which policy it has; " +
			"set access.tokens_file or client_ca_file, so that only the gateway can"
	)
	open := t.Access.TokensFile == "" && t.Access.ClientCAFile == ""
	t.warnOpen(&ps, open, "/http", func(g *Region) string { return g.HTTP }, api)
	t.warnOpen(&ps, open, "/grpc", func(g *Region) string { return g.GRPC }, api)
	t.warnOpen(&ps, t.Access.AdminTokensFile == "" && t.Access.AdminClientCAFile == "", "/admin",
		func(g *Region) string { return g.Admin }, admin)
	if f := t.ForwardAuth; f != nil && f.PolicyFrom != nil {
		names, _ := t.those(func(_ int, g *Region) bool {
			return !OnLoopback(g.HTTP) || g.GRPC != "" && !OnLoopback(g.GRPC)
		})
		ps.When(open && names != "", "/forward_auth/policy_from", saysItself, names)
	}
	for i := range t.RLS.Domains {
		names, _ := t.those(func(_ int, g *Region) bool {
			compat := t.RLS.Compat
			return slices.ContainsFunc([]string{g.GRPC, compat.HTTP, compat.GRPC}, func(addr string) bool { return addr != "" && !OnLoopback(addr) })
		})
		d := &t.RLS.Domains[i]
		ps.When(open && names != "" && d.PolicyFrom != nil, d.At+"/policy_from", saysItself, names)
	}
	for _, l := range t.RLS.Compat.listeners() {
		ps.When(open && !OnLoopback(l.addr), l.field,
			"whoever reaches %s can spend of every domain, or read its limits; set access.tokens_file or client_ca_file, or move it to loopback",
			quota.Clip(l.addr))
	}
	secret := func(pointer, file string) { // lists of tokens are none: they hold hashes
		if file == "" {
			return
		}
		info, err := stat(file)
		ps.When(err == nil && info.Mode().Perm()&0o004 != 0, pointer, "%s is readable by every user of this machine; chmod o-r it (defaultMode: 0400 of a mounted secret)", quota.Clip(file))
	}
	secret("/access/key_file", t.Access.KeyFile)
	secret("/access/admin_key_file", t.Access.AdminKeyFile)
	for i := range t.Regions {
		g, at := &t.Regions[i], quota.Item("/regions", i)
		if g.Gossip != nil {
			secret(at+"/gossip/key_file", g.Gossip.KeyFile)
		}
		secret(at+"/redis/password_file", g.Redis.PasswordFile)
		secret(at+"/redis/sentinel_password_file", g.Redis.SentinelPasswordFile)
		secret(at+"/nats/creds_file", g.NATS.CredsFile)
		secret(at+"/nats/password_file", g.NATS.PasswordFile)
		for name, c := range map[string]*TLS{"/redis": g.Redis.TLS, "/nats": g.NATS.TLS} {
			if c != nil {
				secret(at+name+"/tls/key_file", c.KeyFile)
			}
		}
	}
	return ps.FieldErrors
}

func (t *Topology) warnOpen(ps *problems, open bool, field string, listener func(*Region) string, format string) {
	names, first := t.those(func(_ int, g *Region) bool { return open && listener(g) != "" && !OnLoopback(listener(g)) })
	ps.When(names != "", quota.Item("/regions", first)+field, format, names)
}

// those names the regions that f holds for, "" for none, and returns the place of the first one.
func (t *Topology) those(f func(i int, g *Region) bool) (names string, first int) {
	var all []string
	for i := range t.Regions {
		if f(i, &t.Regions[i]) {
			all, first = append(all, t.Regions[i].Name), cmp.Or(first, i+1)
		}
	}
	return strings.Join(all, ", "), first - 1
}
