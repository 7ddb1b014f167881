package daemon

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/test/redisserver"
)

// TestStartAnewIsWhatStartsAnew: of random pairs of topologies, what OfReload names has no usage after a reload, and all else has
// what it had, in memory and in Redis.
func TestStartAnewIsWhatStartsAnew(t *testing.T) {
	inRedis, err := redisstore.New(redisstore.Options{
		Addrs: []string{redisserver.Start(t, redisserver.Options{}).Addr()}, Budget: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inRedis.Close() })
	for seed := range uint64(500) {
		r := reloading{T: t, seed: seed, store: memstore.New(memstore.Options{Now: func() int64 { return 1_800_000_000_000_000 }})}
		if seed%25 == 0 {
			r.store = inRedis
		}
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		r.before = g.topology()
		r.after = r.before
		for range 1 + g.IntN(3) {
			r.after = g.changed(r.after)
		}
		r.judge()
	}
}

// generator makes topologies of few names, so that a reload often renames, swaps and moves.
type generator struct{ *rand.Rand }

func (g generator) some(all ...string) []string {
	return slices.DeleteFunc(all, func(string) bool { return g.IntN(2) == 0 })
}

func (g generator) limit(name string) quota.Limit {
	l := quota.Limit{
		Name: name, Units: 100 + g.Int64N(2), Window: time.Duration(1+g.IntN(2)) * time.Hour, By: g.some("ip", "user"),
		Algorithm: quota.Algorithm(max(0, g.IntN(8)-3)), //nolint:gosec // it is one, and every second time a log
	}
	if g.IntN(3) == 0 {
		l.When = []quota.Match{{Dimension: "user", Value: "u"}}
	}
	if g.IntN(2) == 0 && l.Algorithm != quota.GCRA && l.Algorithm != quota.Concurrent {
		l.Scope = quota.ScopeGlobal
	}
	if g.IntN(4) == 0 && l.Algorithm == quota.SlidingLog && l.Scope == quota.ScopeGlobal {
		l.MaxOvershoot = quota.Strict
	}
	if g.IntN(4) == 0 && l.Algorithm != quota.Concurrent {
		l.Counts, l.HeldFor = quota.CountsTokens, time.Minute
	}
	switch l.Algorithm {
	case quota.Concurrent:
		l.Window = time.Minute
	case quota.CalendarPeriods:
		zone := time.FixedZone(append(g.some("A"), "UTC")[0], 0)
		l.Calendar = &quota.Calendar{Unit: quota.CalendarDay, Zone: zone, Anchor: 1}
		if g.IntN(2) == 0 {
			l.Calendar.Unit, l.Calendar.Anchor = quota.CalendarMonth, 1+quota.Anchor(g.IntN(2)) //nolint:gosec // it is one
		}
		l.Window = l.Calendar.Unit.Window()
	default:
	}
	return l
}

func (g generator) topology() *region.Topology {
	top := &region.Topology{Regions: make([]region.Region, 1+g.IntN(2)), MaxUnknown: 1000, MaxValues: 1000}
	for _, name := range append(g.some("q", "r"), "p") {
		p := quota.Policy{Name: name, EnforcePercent: -1}
		for _, limit := range append(g.some("b", "c"), "a") {
			p.Limits = append(p.Limits, g.limit(limit))
		}
		top.Policies = append(top.Policies, reserving(p))
	}
	return g.assigned(top)
}

// reserving completes a policy whose limits reservations hold.
func reserving(p quota.Policy) quota.Policy {
	if p.MaxTTL, p.MaxHold = 0, 0; p.Reserves() {
		p.MaxTTL, p.MaxHold = time.Hour, 100
	}
	return p
}

// assigned gives tenants and values of policy_from any policies of the topology.
func (g generator) assigned(top *region.Topology) *region.Topology {
	policy := func() string { return top.Policies[g.IntN(len(top.Policies))].Name }
	top.Tenants = region.Tenants{Default: &quota.Tenant{Policy: policy()}, Listed: map[string]quota.Tenant{}}
	for _, tenant := range g.some("acme", "globex") {
		top.Tenants.Listed[tenant] = quota.Tenant{Policy: policy()}
	}
	top.ForwardAuth = &quota.ForwardAuth{}
	switch g.IntN(4) {
	case 0:
	case 1:
		top.ForwardAuth.PolicyFrom = &quota.PolicySource{}
	default:
		top.ForwardAuth.PolicyFrom = &quota.PolicySource{Policies: map[string]string{}}
		for _, value := range g.some("gold", "silver", "q") {
			top.ForwardAuth.PolicyFrom.Policies[value] = policy()
		}
	}
	return top
}

// changed is another topology with one change.
func (g generator) changed(from *region.Topology) *region.Topology {
	top := *from
	top.Policies = slices.Clone(from.Policies)
	i := g.IntN(len(top.Policies))
	p := &top.Policies[i]
	p.Limits = slices.Clone(p.Limits)
	j := g.IntN(len(p.Limits))
	l, other, name := &p.Limits[j], g.limit(p.Limits[j].Name), append(g.some("d"), "e")[0]
	switch g.IntN(10) {
	case 0:
		l.By = other.By
	case 1:
		l.When = other.When
	case 2:
		l.Counts, l.HeldFor = other.Counts, other.HeldFor
	case 3:
		l.Scope, l.MaxOvershoot = other.Scope, other.MaxOvershoot
	case 4:
		l.Units, l.Window = other.Units, other.Window
	case 5:
		*l = other
	case 6:
		if other.Name = name; p.Limit(name) == nil {
			p.Limits = append(p.Limits, other)
		}
	case 7:
		if p.Limit(name) == nil {
			l.Name = name
		}
	case 8:
		renamed(&top, p, name)
	default:
		if g.IntN(2) == 0 && len(top.Policies) > 1 {
			top.Policies = slices.Delete(top.Policies, i, i+1)
		}
		return g.assigned(&top)
	}
	if *p = reserving(*p); len(p.Validate()) > 0 {
		return from
	}
	return &top
}

// renamed gives a policy another name wherever it is named.
func renamed(top *region.Topology, p *quota.Policy, name string) {
	if top.Policy(name) != nil {
		return
	}
	now := func(policy string) string {
		if policy == p.Name {
			return name
		}
		return policy
	}
	tenants := region.Tenants{Default: &quota.Tenant{Policy: now(top.Tenants.Default.Policy)}, Listed: map[string]quota.Tenant{}}
	for id, t := range top.Tenants.Listed {
		tenants.Listed[id] = quota.Tenant{Policy: now(t.Policy)}
	}
	if from := top.ForwardAuth.PolicyFrom; from != nil && from.Policies != nil {
		policies := map[string]string{}
		for value, policy := range from.Policies {
			policies[value] = now(policy)
		}
		top.ForwardAuth = &quota.ForwardAuth{PolicyFrom: &quota.PolicySource{Policies: policies}}
	}
	top.Tenants, p.Name = tenants, name
}

// counted is a limiter.Global that notes what is counted for other regions, and of which limits they have counted something.
type counted struct{ units, limits map[string]bool }

func (c *counted) Ceiling(_ *quota.Policy, l *quota.Limit, key *quota.CounterKey, _ bool, _ int64) quota.Ceiling {
	c.limits[l.Name] = c.units[string(key.AppendID(nil))]
	return quota.Ceiling{Units: l.Units, Local: l.Units}
}

func (c *counted) Record(
	_ context.Context, _ *quota.Policy, _ *quota.Limit, key *quota.CounterKey, n quota.Counter, _ quota.Gauge, _ int64,
) {
	if n.Units > 0 {
		c.units[string(key.AppendID(nil))] = true
	}
}

func (*counted) Grows(*quota.Policy, *quota.Limit, *quota.CounterKey, int64) time.Duration    { return 0 }
func (*counted) Asked(*quota.CounterKey, loan.Ask)                                            {}
func (*counted) Local(context.Context, *quota.Policy, *quota.Limit, *quota.CounterKey, int64) {}

// reloading is a reload of a limiter.
type reloading struct {
	*testing.T
	seed          uint64
	store         store.Store
	before, after *region.Topology
	limiter       *limiter.Limiter
	counted       counted
}

func (r *reloading) config(top *region.Topology) limiter.Config {
	c := LimiterConfig(top, "a", &r.counted, nil)
	c.Dimensions = append(c.Dimensions, "ip", "user")
	return c
}

// customer is a tenant, with the value of policy_from that its requests have.
type customer struct{ tenant, value string }

// name is what OfReload calls the customer where it has another policy.
func (r *reloading) name(c customer) string {
	for _, top := range []*region.Topology{r.before, r.after} {
		from := top.ForwardAuth.PolicyFrom
		if from != nil && (from.Policies[c.value] != "" || from.Policies == nil && top.Policy(c.value) != nil) {
			return c.value
		}
		if _, listed := top.Tenants.Listed[c.tenant]; listed {
			return c.tenant
		}
	}
	return region.DefaultTenant
}

// use charges and holds so many units under all limits of a customer, and returns what is used of each, and their policy.
func (r *reloading) use(top *region.Topology, c customer, units int64) (used map[string]int64, p *quota.Policy) {
	r.Helper()
	q := quota.Request{Tenant: c.tenant, Cost: 1, Dimensions: quota.Dimensions{{Name: "ip", Value: "i"}, {Name: "user", Value: "u"}}}
	if from := top.ForwardAuth.PolicyFrom; from != nil {
		q.TenantPolicy, q.PolicyValues = c.value, from.Policies
	}
	ask := quota.AskPeek
	if units > 0 {
		ask = quota.AskCheck
	}
	all := r.limiter.Decide(r.Context(), []quota.Question{{Request: q, Ask: ask}})
	p, used = top.Policy(all[0].Decision.Policy), map[string]int64{}
	if q.Cost, q.Reserve = units, true; p != nil && p.Reserves() {
		all = append(all, r.limiter.Reserve(r.Context(), []quota.Request{q})...)
	}
	for _, o := range all {
		if o.Err != nil || !o.Decision.Allowed {
			r.Fatalf("seed %d: %+v", r.seed, o)
		}
		for i := range o.Decision.Limits {
			s := &o.Decision.Limits[i]
			used[s.Limit.Name] = max(used[s.Limit.Name], s.Used(), s.Held)
		}
	}
	return used, p
}

// judge has customers use their limits before the reload and look at them after it.
func (r *reloading) judge() {
	r.Helper()
	r.counted = counted{units: map[string]bool{}, limits: map[string]bool{}}
	o := limiter.Options{Store: r.store, Config: r.config(r.before), Logger: slog.New(slog.DiscardHandler)}
	var err error
	if r.limiter, err = limiter.New(o); err != nil {
		r.Fatal(r.seed, err)
	}
	had := map[customer]*quota.Policy{{"acme", ""}: nil, {"globex", ""}: nil, {"x", ""}: nil, {"y", "gold"}: nil, {"z", "q"}: nil}
	for c := range had {
		if err := r.limiter.Reset(r.Context(), c.tenant); err != nil { // of an earlier seed
			r.Fatal(r.seed, err)
		}
		_, had[c] = r.use(r.before, c, 1)
	}
	if err := r.limiter.Configure(r.config(r.after)); err != nil {
		r.Fatal(r.seed, err)
	}
	named := map[string]bool{}
	for _, names := range strings.Split(startAnew(r.before, r.after), "; ") {
		for name := range strings.SplitSeq(names, ", ") {
			named[name] = true
		}
	}
	for c, old := range had {
		used, now := r.use(r.after, c, 0)
		moved := now.Name != old.Name
		if named[r.name(c)] && !moved {
			r.Errorf("seed %d: %v is named, and has the policy that it had", r.seed, c)
		}
		lost := slices.ContainsFunc(old.Limits, func(l quota.Limit) bool { return now.Limit(l.Name) == nil })
		for name := range used {
			l, limit := now.Limit(name), named[now.Name+"."+name]
			kept := used[name] > 0 && (l.Scope != quota.ScopeGlobal || len(r.after.Regions) == 1 || r.counted.limits[name])
			wrong := kept && limit || !kept && !limit && (lost || old.Limit(name) != nil) // a limit that is new is neither
			if moved {
				wrong = kept || !limit && !named[r.name(c)]
			}
			if wrong {
				r.Errorf("seed %d: %v had %+v and has %+v: of %s usage is kept: %v, and named are %v",
					r.seed, c, old, now, name, kept, slices.Sorted(maps.Keys(named)))
			}
		}
	}
}
