package limiter

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/regiond/regiond/quota"
)

// Config is what a Limiter enforces. It is replaced whole (Limiter.Configure);
// usage survives, because nothing of it is kept with the usage.
type Config struct {
	Hash     string // names this configuration in answers
	Region   string
	Policies []quota.Policy // valid, names unique
	Tenants  map[string]quota.Tenant
	// Default is the rule for tenants that are not listed; nil refuses them.
	Default *quota.Tenant
	// Dimensions are names that requests may carry although no policy uses them,
	// such as those that a gateway always sends.
	Dimensions []string
	// MaxUnknown bounds the live partitions of tenants that are not listed.
	MaxUnknown int
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
	plans map[string]*policyPlan
	dims  []string // all that any policy uses, and Config.Dimensions; sorted
}

// policyPlan is one policy, compiled.
type policyPlan struct {
	policy *quota.Policy
	window int64    // the longest W, µs
	plans  sync.Map // which limits apply, as a bit mask → *limitPlan
}

// limitPlan is the key plan of some limits of a policy, and the same for one process
// of several that counts by itself.
type limitPlan struct {
	keys   *KeyPlan
	limits []*quota.Limit
	locals sync.Map // by how many processes → *KeyPlan
}

func compile(c Config) (*rules, error) {
	if c.Processes == nil {
		c.Processes = func() int64 { return 1 }
	}
	r := &rules{Config: c, plans: make(map[string]*policyPlan, len(c.Policies))}
	for i := range c.Policies {
		p := &c.Policies[i]
		if ms := p.Validate(); len(ms) > 0 {
			return nil, fmt.Errorf("policy %s: %w", p.Name, &quota.Invalid{Fields: ms})
		}
		pl := &policyPlan{policy: p}
		r.dims = append(r.dims, p.Dimensions()...)
		for j := range p.Limits {
			pl.window = max(pl.window, p.Limits[j].WindowUS())
		}
		r.plans[p.Name] = pl
	}
	r.dims = append(r.dims, c.Dimensions...)
	slices.Sort(r.dims)
	r.dims = slices.Compact(r.dims)
	rules := []quota.Tenant{}
	if c.Default != nil {
		rules = append(rules, *c.Default)
	}
	for _, t := range c.Tenants {
		rules = append(rules, t)
	}
	for _, t := range rules {
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
	plan        *policyPlan
	limits      *limitPlan // nil when no limit applies
	call        Call
	ceilings    []quota.Ceiling // of global limits, by place in the key plan; nil without any
	processes   int64           // among how many a local decision divided, 0 for another
	enforcement quota.Enforcement
	overflow    bool
}

// resolve validates a request and plans its call, or returns all that is wrong with it.
// The names of the request's keys are put into s.
func (r *rules) resolve(req *quota.Request, op Op, overflow *overflow, s *scratch) (query, error) {
	q := query{rules: r, request: req}
	ms := req.Validate()
	tenant, listed := r.Tenants[req.Tenant]
	if !listed && r.Default != nil {
		tenant = *r.Default
	}
	name := req.Policy
	if name == "" {
		name = tenant.Policy
	}
	switch {
	case !listed && r.Default == nil:
		ms = append(ms, quota.FieldError{Pointer: "/tenant", Detail: "is not listed under tenants, and there is no default"})
	case r.plans[name] == nil:
		ms = append(ms, quota.FieldError{Pointer: "/policy", Detail: fmt.Sprintf("%.80q is not a policy", name)})
	default:
		q.plan = r.plans[name]
		ms = append(ms, r.unknownDimensions(req.Dimensions)...)
	}
	if len(ms) > 0 {
		return q, &quota.Invalid{Fault: quota.FaultInput, Fields: ms}
	}
	q.enforcement = enforcement(q.plan.policy, tenant.Enforcement, req.Tenant)
	q.limits = q.plan.planFor(req.Dimensions)
	if q.limits == nil {
		return q, nil
	}
	if op != OpReport {
		if ms := q.tooCostly(); len(ms) > 0 {
			return q, &quota.Invalid{Fault: quota.FaultCost, Fields: ms}
		}
	}
	q.planCall(op, !listed, overflow, s)
	return q, nil
}

// unknownDimensions are dimensions that no policy knows: a typo would otherwise lift a
// limit in silence. Those of another policy are fine, since a gateway sends the
// same ones for every tenant.
func (r *rules) unknownDimensions(dims quota.Dimensions) []quota.FieldError {
	var ms []quota.FieldError
	for _, d := range dims {
		if _, known := slices.BinarySearch(r.dims, d.Name); !known {
			ms = append(ms, quota.FieldError{Pointer: "/dimensions/" + d.Name, Detail: fmt.Sprintf(
				"is not a dimension of any policy; they use [%s]", strings.Join(r.dims, ", "))})
		}
	}
	return ms
}

// planFor returns the plan of the limits that apply, nil for none.
func (p *policyPlan) planFor(dims quota.Dimensions) *limitPlan {
	mask := uint32(0)
	for i := range p.policy.Limits {
		if p.policy.Limits[i].Applies(dims) {
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
	s, _ := p.plans.LoadOrStore(mask, &limitPlan{keys: NewKeyPlan(limits), limits: limits})
	return s.(*limitPlan)
}

// mostStretch is how many times as long a window gets at most: one of 31 days would soon
// not fit a time.Duration.
const mostStretch = 1000

// local is the plan that one of so many processes counts by itself: the rate of
// a gcra limit is divided, not only its height. Its window is stretched, since its units
// need not come out even:
//
//	1 per 1s, burst 8, of four processes:   1 per 4s, burst 2
func (s *limitPlan) local(processes int64) *KeyPlan {
	if local, ok := s.locals.Load(processes); ok {
		return local.(*KeyPlan)
	}
	limits := make([]*quota.Limit, len(s.limits))
	for i, l := range s.limits {
		alone := *l
		if alone.Algorithm == quota.GCRA {
			// A burst below one unit per process admits nothing, at whatever rate.
			stretch := min(processes, alone.Capacity(), mostStretch)
			alone.Burst = max(1, alone.Capacity()/processes)
			alone.Window *= time.Duration(stretch)
			alone.Units = max(1, alone.Units*stretch/processes) // the same, but for very many
		}
		limits[i] = &alone
	}
	plan := NewKeyPlan(limits)
	for i := range plan.keys { // recent usage records what Redis admits and what memory does under one step
		plan.keys[i].step = s.keys.keys[i].step
	}
	local, _ := s.locals.LoadOrStore(processes, plan)
	return local.(*KeyPlan)
}

func (q *query) tooCostly() []quota.FieldError {
	for _, l := range q.limits.keys.limits {
		if q.request.Cost > l.Capacity() {
			return []quota.FieldError{{Pointer: "/cost", Detail: fmt.Sprintf(
				"%d can never be admitted: limit %s of policy %s holds %d", q.request.Cost, l.Name, q.plan.policy.Name, l.Capacity())}}
		}
	}
	return nil
}

// planCall fills in the call.
func (q *query) planCall(op Op, unlisted bool, overflow *overflow, s *scratch) {
	r := q.rules
	req, plan, policy := q.request, q.limits.keys, q.plan.policy.Name
	tenant, dims := req.Tenant, req.Dimensions
	keys := s.keys(plan, tenant, policy, dims)
	if unlisted && !overflow.admit(keys, q.plan.window, r.MaxUnknown, op != OpPeek) {
		q.overflow = true
		tenant, dims = "", nil
		keys = s.keys(plan, tenant, policy, dims)
	}
	q.call = Call{Plan: plan, Keys: keys, Counters: s.counters(plan, keys, tenant, policy), Op: op, Cost: req.Cost, Ceilings: plan.capacities}
	if r.Global != nil && plan.global > 0 {
		q.call.Ceilings = slices.Clone(plan.capacities)
		q.ceilings = make([]quota.Ceiling, len(plan.limits))
		q.eachGlobal(func(i int, l *quota.Limit, key *quota.CounterKey) {
			q.ceilings[i] = r.Global.Ceiling(q.plan.policy, l, key, req.Explain)
			q.call.Ceilings[i] = q.ceilings[i].Units
		})
	}
	if req.IdempotencyKey != "" && op != OpPeek {
		q.call.Record = recordKey(tenant, req.Tenant, req.IdempotencyKey)
		q.call.Print = fingerprint(req, op)
	}
}

// fingerprint distinguishes requests that have the same idempotency key.
func fingerprint(req *quota.Request, op Op) string {
	h := xxhash.New()
	fmt.Fprintf(h, "%c %q %d %q", op, req.Tenant, req.Cost, req.Policy)
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
	// p in the partition with this counter. explain asks for the terms.
	Ceiling(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, explain bool) quota.Ceiling
	// Grows is how long from now until the ceiling reaches units, if nobody spends
	// anything meanwhile; at most l.Window.
	Grows(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64) time.Duration
	// Record publishes what the store held of the counter at its TIME storeUS, the zero
	// Counter for nothing, after each decision, charged or not. ctx is that of the
	// request if it was charged, for its span, and context.Background() otherwise.
	Record(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, c quota.Counter, storeUS int64)
	// Local publishes what this process admitted in memory while the store was away,
	// for the request of ctx.
	Local(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64)
}

// overflow counts the live partitions of unlisted tenants, so that an attacker
// who invents ids fills one shared partition instead of Redis. Its verdict is
// this process's own. Safe for concurrent use.
type overflow struct {
	now  func() int64 // µs, a clock that no step of the host's moves
	seed maphash.Seed

	mu   sync.Mutex
	live map[uint64]int64 // hash of the keys → when it is gone, µs
}

func newOverflow(now func() int64) *overflow {
	return &overflow{now: now, seed: maphash.MakeSeed(), live: make(map[uint64]int64)}
}

// admit reports whether the partition with these keys may be counted as itself:
// it is live already, or there are fewer than most. With take it stays live for two
// windows (µs) after the last request for it.
func (o *overflow) admit(keys []string, window int64, most int, take bool) bool {
	id, now := o.id(keys), o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.live[id]; !ok && len(o.live) >= most {
		dropSome(o.live, func(until int64) bool { return until <= now })
		if len(o.live) >= most {
			return false
		}
	}
	if take {
		o.live[id] = now + 2*window
	}
	return true
}

func (o *overflow) id(keys []string) uint64 {
	var h maphash.Hash
	h.SetSeed(o.seed)
	for _, k := range keys {
		h.WriteString(k)
	}
	return h.Sum64()
}

// size counts the live ones, dropping the others.
func (o *overflow) size() int {
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.live, func(_ uint64, until int64) bool { return until <= now })
	return len(o.live)
}
