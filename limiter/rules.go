package limiter

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// Config is what a Limiter enforces. It is replaced whole (Limiter.Configure);
// usage survives, because nothing of it is kept with the usage.
type Config struct {
	Hash     string // names this configuration in answers
	Region   string
	Policies []quota.Policy // valid, names unique
	Domains  []quota.Domain // the same, with any number of limits
	Tenants  map[string]quota.Tenant
	// Default is the rule for tenants that are not listed; nil refuses them.
	Default *quota.Tenant
	// Dimensions are names that requests may carry although no policy uses them,
	// such as those that a gateway always sends.
	Dimensions []string
	// MaxUnknown bounds the live partitions of tenants that are not listed.
	MaxUnknown int
	// MaxValues bounds, for each listed tenant and each list of dimensions that limits count
	// by, how many values have partitions of their own; 0 is no bound.
	MaxValues int
	// MaxOverride is how many times its units an override gives a limit at most; 0 is no bound.
	MaxOverride int64
	// Global supplies the ceilings of global limits; nil means a single region, whose
	// ceiling is the limit.
	Global Global
	// Processes is by how many the memory of this process is divided while Redis
	// is away: the regiond processes of this region, at least 1. nil means 1.
	Processes func() int64
}

// rules is a Config, compiled. Immutable but for the key plans that it caches.
type rules struct {
	Config
	plans   map[string]*policyPlan
	domains map[string]*domainPlan // by the names of their policies
	dims    []string               // all that any policy uses, and Config.Dimensions; sorted

	values map[string]*values // of the listed tenants, and those of domains

	unknown string // the detail of the error of any other dimension

	looking sync.Once
	looked  map[lookKey]*looks // once looking is done
}

// policyPlan is one policy, compiled.
type policyPlan struct {
	policy *quota.Policy
	plans  sync.Map // which limits apply, as a bit mask → *limitPlan
}

// limitPlan is the key plan of some limits of a policy, and the same for one process
// of several that counts by itself.
type limitPlan struct {
	newKeys func(limits []*quota.Limit) *store.KeyPlan
	keys    *store.KeyPlan
	limits  []*quota.Limit
	locals  sync.Map                      // by how many processes → *KeyPlan
	settles atomic.Pointer[store.KeyPlan] // KeyPlan.Settling, once there was a settle
	unders  unders
}

// compile keeps what before knows of the values of tenants; it may be nil.
func compile(c Config, before *rules) (*rules, error) {
	if c.Processes == nil {
		c.Processes = func() int64 { return 1 }
	}
	r := &rules{Config: c, plans: make(map[string]*policyPlan, len(c.Policies))}
	for i := range c.Policies {
		p := &c.Policies[i]
		if ms := p.Validate(); len(ms) > 0 {
			return nil, fmt.Errorf("policy %s: %w", p.Name, &quota.Invalid{Fields: ms})
		}
		r.dims = append(r.dims, p.Dimensions()...)
		r.plans[p.Name] = &policyPlan{policy: p}
	}
	r.dims = append(r.dims, c.Dimensions...)
	slices.Sort(r.dims)
	r.dims = slices.Compact(r.dims)
	r.unknown = fmt.Sprintf("is not a dimension of any policy; they use %s", cmp.Or(strings.Join(r.dims, ", "), "none"))
	listed := slices.Collect(maps.Keys(c.Tenants))
	r.domains = make(map[string]*domainPlan, len(c.Domains))
	for _, d := range c.Domains {
		if ms := d.Policy.ValidateLimits(); len(ms) > 0 {
			return nil, fmt.Errorf("policy %s: %w", d.Policy.Name, &quota.Invalid{Fields: ms})
		}
		r.domains[d.Policy.Name] = &domainPlan{policyPlan: policyPlan{policy: d.Policy}, together: map[string]*limitPlan{}}
		listed = append(listed, d.Tenant)
	}
	if before != nil {
		for _, d := range before.Domains { // of requests that are under way: they name limits of the configuration before
			if name := d.Policy.Name; r.domains[name] == nil {
				r.domains[name] = before.domains[name]
				listed = append(listed, d.Tenant)
			}
		}
	}
	r.values = make(map[string]*values, len(listed))
	for _, id := range listed {
		if before != nil {
			r.values[id] = before.values[id]
		}
		if r.values[id] == nil {
			r.values[id] = &values{}
		}
	}
	tenants := slices.Collect(maps.Values(c.Tenants))
	if c.Default != nil {
		tenants = append(tenants, *c.Default)
	}
	for _, t := range tenants {
		if r.plans[t.Policy] == nil {
			return nil, fmt.Errorf("a tenant has policy %q, which is not defined", t.Policy)
		}
	}
	return r, nil
}

// query is a validated request: what to ask of which store.
type query struct {
	rules       *rules
	request     *quota.Request
	out         quota.Outcome
	plan        *policyPlan
	limits      *limitPlan // nil when no limit applies
	call        store.Call
	ceilings    []quota.Ceiling // of global limits, by place in the key plan; nil without any
	processes   int64           // among how many a local decision divided, 0 for another
	enforcement quota.Enforcement
	asks        bool // the store has to decide it
	overflow    bool
	unclaimed   bool    // no policy has the value of the request's TenantPolicy
	shared      bool    // a key is that of the values beyond MaxValues
	hold        holding // of a reserve, and of the claims on it
	override    overridden
}

// resolve completes the query of its request: it validates that and plans its call, or returns all that is wrong with it.
func (q *query) resolve(r *rules, op store.Op, overflow *overflow) error {
	q.rules = r
	req := q.request
	if req.Charges != nil {
		return q.resolveDomain(op, overflow)
	}
	ms := req.Validate()
	tenant, listed := q.tenantOf()
	name := req.Policy
	if name == "" || req.PolicyDefault || req.TenantPolicy != "" && !q.unclaimed {
		name = tenant.Policy
	}
	switch {
	case !listed && r.Default == nil:
		ms = append(ms, quota.FieldError{Pointer: "/tenant", Detail: "is not listed under tenants, and there is no default"})
	case r.plans[name] == nil && r.domains[name] != nil:
		ms = append(ms, quota.FieldError{Pointer: "/policy", Detail: fmt.Sprintf(
			"%.80q is of a rate limit domain: ask for its descriptors over gRPC, with hits_addend 0 to look", name)})
	case r.plans[name] == nil:
		ms = append(ms, quota.FieldError{Pointer: "/policy", Detail: fmt.Sprintf("%.80q is not a policy", name)})
	default:
		if q.plan = r.plans[name]; !req.IgnoreUnknown {
			ms = append(ms, r.unknownDimensions(req.Dimensions)...)
		}
	}
	if len(ms) > 0 {
		return &quota.Invalid{Fault: quota.FaultInput, Fields: ms}
	}
	if op == store.OpReserve && !q.plan.policy.Reserves() {
		return errNoHolds(name, "limit with counts: tokens or kind: concurrent")
	}
	q.enforcement = enforcement(q.plan.policy, tenant.Enforcement, req.Tenant)
	q.limits = q.plan.planFor(req.Dimensions, op)
	q.applyUnits(tenant.Policy, op)
	if q.limits == nil || q.override.suspended != nil {
		return nil
	}
	return q.planCall(op, !listed, overflow)
}

// tenant is what the configuration says of a tenant, the default where it is not listed.
func (r *rules) tenant(id string) (t quota.Tenant, listed bool) {
	if t, listed = r.Tenants[id]; !listed && r.Default != nil {
		t = *r.Default
	}
	return t, listed
}

// claimed returns the policy that the TenantPolicy of a request means.
func (r *rules) claimed(req *quota.Request) (policy string, ok bool) {
	if policy = req.TenantPolicy; req.PolicyValues != nil {
		policy = req.PolicyValues[policy]
	}
	return policy, r.plans[policy] != nil
}

// limit is a limit of a policy, nil for none.
func (r *rules) limit(policy, name string) *quota.Limit {
	p := r.plans[policy]
	if p == nil {
		d := r.domains[policy]
		if d == nil {
			return nil
		}
		p = &d.policyPlan
	}
	for i := range p.policy.Limits {
		if l := &p.policy.Limits[i]; l.Name == name {
			return l
		}
	}
	return nil
}

// unknownDimensions are dimensions that no policy knows: a typo would otherwise lift a
// limit in silence. Those of another policy are fine, since a gateway sends the
// same ones for every tenant. Names that are not valid have an error already.
func (r *rules) unknownDimensions(dims quota.Dimensions) []quota.FieldError {
	var ms []quota.FieldError
	for _, d := range dims {
		if _, known := slices.BinarySearch(r.dims, d.Name); !known && quota.ValidName(d.Name) == nil {
			ms = append(ms, quota.FieldError{Pointer: "/dimensions/" + d.Name, Detail: r.unknown})
		}
	}
	return ms
}

// planFor returns the plan of the limits that apply to what op does, nil for none.
func (p *policyPlan) planFor(dims quota.Dimensions, op store.Op) *limitPlan {
	mask, reserves := uint32(0), op.OfReservation()
	for i := range p.policy.Limits {
		if l := &p.policy.Limits[i]; l.Applies(dims) && (reserves || l.Algorithm != quota.Concurrent) {
			mask |= 1 << i
		}
	}
	if mask == 0 {
		return nil
	}
	if s, ok := p.plans.Load(mask); ok {
		return s.(*limitPlan)
	}
	var limits []*quota.Limit
	for i := range p.policy.Limits {
		if mask&(1<<i) != 0 {
			limits = append(limits, &p.policy.Limits[i])
		}
	}
	s, _ := p.plans.LoadOrStore(mask, &limitPlan{newKeys: store.NewKeyPlan, keys: store.NewKeyPlan(limits), limits: limits})
	return s.(*limitPlan)
}

// settling is the plan of settles.
func (s *limitPlan) settling() *store.KeyPlan {
	if p := s.settles.Load(); p != nil {
		return p
	}
	s.settles.CompareAndSwap(nil, s.keys.Settling())
	return s.settles.Load()
}

// mostStretch is how many times as long a window gets at most: one of 31 days would soon
// not fit a time.Duration.
const mostStretch = 1000

// local is the plan that one of so many processes counts by itself. A window is stretched
// where units do not come out even: that of a gcra limit, whose rate is divided too, and of
// another that has less than a unit for each process:
//
//	1 per 1s, burst 8, of four processes:   1 per 4s, burst 2
//	5 per 1m, of six processes:             1 per 2m
func (s *limitPlan) local(processes int64) *store.KeyPlan {
	if local, ok := s.locals.Load(processes); ok {
		return local.(*store.KeyPlan)
	}
	limits := make([]*quota.Limit, len(s.limits))
	for i, l := range s.limits {
		alone := *l
		switch {
		case l.Algorithm == quota.Concurrent: // each reservation says how long it lasts
		case l.Algorithm == quota.CalendarPeriods: // a period is what it is: each process has a unit at least
		case l.Algorithm == quota.GCRA:
			stretch := min(processes, mostStretch)
			alone.Burst = max(1, l.Capacity()/processes)
			alone.Window *= time.Duration(stretch)
			alone.Units = max(1, l.Units*stretch/processes) // the same, but for very many
		case l.Units < processes && l.Scope == quota.ScopeRegion:
			alone.Window *= time.Duration(min((processes+l.Units-1)/l.Units, mostStretch))
		}
		limits[i] = &alone
	}
	plan := s.newKeys(limits)
	local, _ := s.locals.LoadOrStore(processes, plan)
	return local.(*store.KeyPlan)
}

func (q *query) tooCostly(op store.Op) error {
	for i, l := range q.limits.limits {
		cost, most, pointer := q.request.Cost, l.Capacity(), "/cost"
		switch {
		case op == store.OpReserve && l.Counts != quota.CountsTokens: // it takes 1 of it
			continue
		case op == store.OpReserve:
			most, pointer = q.plan.policy.MostHeld(l), "/amount"
		case q.request.Charges != nil:
			cost = q.request.Charges[i].Cost
		}
		if cost > most {
			observed := q.enforcement == quota.Observe
			return &quota.Invalid{Fault: quota.FaultCost, Limit: l, Policy: q.plan.policy.Name, Observed: observed, Fields: []quota.FieldError{{Pointer: pointer, Detail: fmt.Sprintf(
				"%d can never be admitted: limit %s of policy %s holds %d", cost, l.Name, q.plan.policy.Name, most)}}}
		}
	}
	return nil
}

// planCall fills in the call of a query that has limits.
func (q *query) planCall(op store.Op, unlisted bool, overflow *overflow) error {
	if op != store.OpReport && op != store.OpRefund {
		if err := q.tooCostly(op); err != nil {
			return err
		}
	}
	req, plan, policy := q.request, q.limits.keys, q.plan.policy.Name
	tenant, takes := req.Tenant, op != store.OpPeek && op != store.OpRefund && (op != store.OpReserve || req.Cost > 0)
	keys := keysOf(plan, tenant, policy, req)
	if unlisted && !overflow.admit(keys, plan.TTL(), takes) {
		q.overflow = true
		tenant = ""
		keys = keysOf(plan, tenant, policy, &quota.Request{})
	}
	if !unlisted && q.rules.MaxValues > 0 {
		q.shareValues(keys, overflow, takes)
	}
	q.fillCall(op, keys, tenant)
	if req.Charges != nil && !req.Reserve { // which holds the same of all
		q.takeCosts()
	}
	if req.IdempotencyKey != "" && takes {
		q.call.Record = store.RecordKey(req.Tenant, req.IdempotencyKey)
		q.call.Print = fingerprint(req, op)
	}
	if op == store.OpReserve {
		q.planHold()
	}
	return nil
}

// fillCall makes the call under these keys.
func (q *query) fillCall(op store.Op, keys []string, tenant string) {
	plan := q.limits.keys
	q.call = store.Call{
		Plan: plan, Keys: keys, Counters: plan.AppendCounters(nil, keys, tenant, q.plan.policy.Name), Op: op, Cost: q.request.Cost,
		Ceilings: plan.Capacities,
	}
	if q.rules.Global != nil && plan.Global > 0 {
		q.call.Ceilings = slices.Clone(plan.Capacities)
		q.call.Known = make([]quota.Counter, 0, plan.Global)
		q.ceilings = make([]quota.Ceiling, len(plan.Limits))
		q.takeCeilings()
	}
}

// keysOf are the keys of a request under a plan.
func keysOf(p *store.KeyPlan, tenant, policy string, req *quota.Request) []string {
	if req.Charges == nil {
		return p.AppendKeys(nil, tenant, policy, req.Dimensions)
	}
	dims := make([]quota.Dimensions, len(req.Charges))
	for i := range req.Charges {
		dims[i] = req.Charges[i].Dimensions
	}
	return p.AppendKeys(nil, tenant, policy, dims...)
}

// takeCosts puts the costs of charges into the call.
func (q *query) takeCosts() {
	charges := q.request.Charges
	costs, apart := make([]int64, len(charges)), false
	for i := range charges {
		costs[i] = charges[i].Cost
		q.call.Cost = max(q.call.Cost, costs[i])
		apart = apart || costs[i] != costs[0] || slices.Contains(q.call.Keys[:i], q.call.Keys[i])
	}
	if apart {
		q.call.Costs = costs
	}
}

// shareValues replaces the keys of values for which there is no place.
func (q *query) shareValues(keys []string, overflow *overflow, take bool) {
	plan, req := q.limits.keys, q.request
	for i := range plan.Keys {
		k := &plan.Keys[i]
		by, dims := k.Limits[0].By, req.Dimensions
		if req.Charges != nil {
			dims = req.Charges[i].Dimensions
		}
		if len(by) == 0 || q.valuesOf(overflow).of(by, q.rules.MaxValues).admit(valueID(overflow.seed, by, dims), overflow.now(), k.Life, take) {
			continue
		}
		keys[i], q.shared = k.Shared(req.Tenant, q.plan.policy.Name), true
		q.hold.shared |= 1 << i
	}
}

// valuesOf are the places of the tenant's values: one that is listed by its override has them beside those of the configuration.
func (q *query) valuesOf(overflow *overflow) *values {
	if v := q.rules.values[q.request.Tenant]; v != nil {
		return v
	}
	v, _ := overflow.values.LoadOrStore(q.request.Tenant, &values{})
	return v.(*values)
}

// fingerprint distinguishes requests that have the same idempotency key.
func fingerprint(req *quota.Request, op store.Op) string {
	h := xxhash.New()
	fmt.Fprintf(h, "%c %q %d %q", op, req.Tenant, req.Cost, req.Policy)
	if op == store.OpReserve {
		fmt.Fprintf(h, " %d", req.TTL)
	}
	for _, d := range req.Dimensions {
		fmt.Fprintf(h, " %q=%q", d.Name, d.Value)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// enforcement says whether a tenant's denials are carried out: its own setting,
// else the policy's, for enforce_share of the tenants by hash. The hash is of the
// id alone, so all regions choose the same tenants and a larger share only adds.
func enforcement(p *quota.Policy, own *quota.Enforcement, tenant string) quota.Enforcement {
	if own != nil {
		return *own
	}
	if p.Enforcement == quota.Enforce && p.EnforcePercent >= 0 {
		if float64(xxhash.Sum64String(tenant))/math.MaxUint64*100 >= p.EnforcePercent {
			return quota.Observe
		}
	}
	return p.Enforcement
}

// Global is what a limiter needs of the other regions. Its methods are called
// for each decision about a global limit; they never block, are safe for concurrent
// use, and do not keep the key.
type Global interface {
	// Ceiling is how far this region may go now under the global limit l of policy
	// p in the partition with this counter. explain asks for the terms. period is the number of the period that the store counts in
	// now, of a limit with a calendar; 0: that is not known, and Ceiling.Period says which it takes it for.
	Ceiling(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, explain bool, period int64) quota.Ceiling
	// Grows is how long from now until the ceiling reaches units, if nobody spends
	// anything meanwhile; at most l.Window. It is not for a limit with a calendar, whose ceiling grows with the next period.
	Grows(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64) time.Duration
	// Record publishes what the store held of the counter at its TIME storeUS, the zero
	// Counter for nothing, and of the gauge beside it, after each decision, charged or not. ctx is that of the
	// request if it was charged, for its span, and context.Background() otherwise.
	Record(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, c quota.Counter, g quota.Gauge, storeUS int64)
	// Asked takes note of what a decision shows of a limit with a bound.
	Asked(key *quota.CounterKey, a loan.Ask)
	// Local publishes what this process admitted in memory while the store was away,
	// for the request of ctx.
	Local(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64)
}
