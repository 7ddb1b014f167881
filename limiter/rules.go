package limiter

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
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
	domains map[string]*policyPlan // by the names of their policies; of the configuration before too, for requests under way
	dims    []string               // all that any policy uses, and Config.Dimensions; sorted
	unknown string                 // the detail of the error of any other dimension
	looks   func() map[lookKey]*looks
}

// policyPlan is the policy of tenants or of a domain, compiled.
type policyPlan struct {
	policy *quota.Policy
	tenant string // of a domain
	plans  plans  // by which limits apply, or which a request names
}

// limitPlan is the key plan of some limits of a policy, and those made of it.
type limitPlan struct {
	newKeys func(limits []*quota.Limit) *store.KeyPlan
	keys    *store.KeyPlan
	limits  []*quota.Limit
	locals  plans // by how many processes count by themselves; 0: of settles
	unders  plans // of the same limits with other units, by these
}

func newLimitPlan(limits []*quota.Limit, newKeys func([]*quota.Limit) *store.KeyPlan) *limitPlan {
	return &limitPlan{newKeys: newKeys, keys: newKeys(limits), limits: limits}
}

// mostPlans bounds the plans that are kept: gateways have a few dozen routes, each with its own set of limits. What is beyond is made
// for each request, and its denials are not remembered.
const mostPlans = 1 << 12

// plans are kept, since denials are remembered under them. Safe for concurrent use.
type plans struct {
	mu  sync.RWMutex
	all map[string]*limitPlan
}

func (p *plans) get(key []byte) *limitPlan {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.all[string(key)]
}

// put keeps a plan in the place of another, and returns it.
func (p *plans) put(key []byte, plan *limitPlan) *limitPlan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]*limitPlan{}
	}
	if p.all[string(key)] != nil || len(p.all) < mostPlans {
		p.all[string(key)] = plan
	}
	return plan
}

// compile keeps the domains of before, which may be nil.
func compile(c Config, before *rules) (*rules, error) {
	if c.Processes == nil {
		c.Processes = func() int64 { return 1 }
	}
	r := &rules{Config: c, plans: make(map[string]*policyPlan, len(c.Policies)), domains: make(map[string]*policyPlan, len(c.Domains))}
	r.looks = sync.OnceValue(r.makeLooks)
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
	if before != nil {
		for _, d := range before.Domains {
			r.domains[d.Policy.Name] = before.domains[d.Policy.Name]
		}
	}
	for _, d := range c.Domains {
		if ms := d.Policy.ValidateLimits(); len(ms) > 0 {
			return nil, fmt.Errorf("policy %s: %w", d.Policy.Name, &quota.Invalid{Fields: ms})
		}
		r.domains[d.Policy.Name] = &policyPlan{policy: d.Policy, tenant: d.Tenant}
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

// policies are those of tenants and of domains in force; none before the first configuration.
func (r *rules) policies() iter.Seq[*quota.Policy] {
	return func(yield func(*quota.Policy) bool) {
		if r == nil {
			return
		}
		for i := range r.Policies {
			if !yield(&r.Policies[i]) {
				return
			}
		}
		for i := range r.Domains {
			if !yield(r.Domains[i].Policy) {
				return
			}
		}
	}
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
	asks        bool     // the store has to decide it
	recalls     store.Op // what it was to do, where all that may pass is an admission to replay; else 0
	tooMuch     error    // why its cost can never be admitted now, where an earlier admission may be replayed
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
		q.plan = r.plans[name]
		for _, d := range req.Dimensions {
			// A typo would otherwise lift a limit in silence. Those of another policy are fine, since a gateway sends the same ones for
			// every tenant. Names that are not valid have an error already.
			if _, known := slices.BinarySearch(r.dims, d.Name); !known && !req.IgnoreUnknown && quota.ValidName(d.Name) == nil {
				ms = append(ms, quota.FieldError{Pointer: "/dimensions/" + d.Name, Detail: r.unknown})
			}
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

// limit is a limit of a policy, nil for none.
func (r *rules) limit(policy, name string) *quota.Limit {
	p := cmp.Or(r.plans[policy], r.domains[policy])
	if p == nil {
		return nil
	}
	return p.policy.Limit(name)
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
	var array [binary.MaxVarintLen32]byte
	key := binary.AppendUvarint(array[:0], uint64(mask))
	if plan := p.plans.get(key); plan != nil {
		return plan
	}
	var limits []*quota.Limit
	for i := range p.policy.Limits {
		if mask&(1<<i) != 0 {
			limits = append(limits, &p.policy.Limits[i])
		}
	}
	return p.plans.put(key, newLimitPlan(limits, store.NewKeyPlan))
}

// settling is the plan of settles.
func (s *limitPlan) settling() *store.KeyPlan {
	plan := s.locals.get([]byte{0})
	if plan == nil {
		plan = s.locals.put([]byte{0}, &limitPlan{keys: s.keys.Settling()})
	}
	return plan.keys
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
	var array [binary.MaxVarintLen64]byte
	key := binary.AppendVarint(array[:0], processes)
	if plan := s.locals.get(key); plan != nil {
		return plan.keys
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
	return s.locals.put(key, newLimitPlan(limits, s.newKeys)).keys
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
	req, plan, policy := q.request, q.limits.keys, q.plan.policy.Name
	tenant, takes := req.Tenant, op != store.OpPeek && op != store.OpRefund && (op != store.OpReserve || req.Cost > 0)
	if op != store.OpReport && op != store.OpRefund {
		if q.tooMuch = q.tooCostly(op); q.tooMuch != nil && (req.IdempotencyKey == "" || !takes) {
			return q.tooMuch
		}
	}
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
		q.call.Print, q.call.Policy = fingerprint(req, op), policy
	}
	if op == store.OpReserve {
		q.planHold()
	}
	if q.call.Record != "" && (q.tooMuch != nil || q.closed()) {
		q.recalls, q.call.Op = q.call.Op, store.OpPeek
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
		if len(by) == 0 || overflow.valuesOf(req.Tenant).of(by, q.rules.MaxValues).admit(valueID(overflow.seed, by, dims), overflow.now(), k.Life, take) {
			continue
		}
		keys[i], q.shared = k.Shared(req.Tenant, q.plan.policy.Name), true
		q.hold.shared |= 1 << i
	}
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
