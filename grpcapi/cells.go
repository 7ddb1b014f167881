package grpcapi

import (
	"slices"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// cell is one descriptor of a request: what applies to it, and what came of it.
type cell struct {
	rule   *rls.Rule      // nil: no limit applies
	claim  *quota.Request // where the tenant's policy decides, under rule ByPolicy: nil otherwise
	tenant string
	dims   quota.Dimensions
	cost   int64 // with that of its equals
	ask    quota.Ask
	first  int  // place of the first of its equals, which is asked for all of them
	free   bool // it is not denied: it takes units back

	over      bool               // under its limit there is no room for the cost
	undecided bool               // the cell is over because nothing could be decided
	state     quota.LimitState   // of several limits the one that sums them up
	states    []quota.LimitState // of the tenant's policy, of which policy is the name
	policy    string
	unserved  bool // no policy decides, since nobody serves the tenant
}

// counted reports whether the cell has to be asked.
func (c *cell) counted() bool {
	return c.claim != nil || c.rule != nil && !c.rule.Unlimited && c.rule.PerUnit > 0
}

// never reports whether the cost can never be admitted.
func (c *cell) never() bool {
	return c.claim == nil && c.rule != nil && !c.rule.Unlimited && (c.rule.PerUnit == 0 || c.ask == quota.AskCheck && c.cost > c.rule.Limit.Units)
}

// ofQuota reports whether the cell refuses the request together with all others of quota mode.
func (c *cell) ofQuota() bool { return c.rule != nil && c.rule.Quota && !c.rule.Shadow && !c.free }

// denies reports whether the cell, being over, refuses the request by itself.
func (c *cell) denies() bool { return !c.rule.Shadow && !c.rule.Quota && !c.free }

// pricing says what is asked of descriptors.
type pricing struct {
	charge  region.Charge
	hits    uint64 // of a descriptor that has none of its own; 0 is 1
	alone   bool   // hits are those of all descriptors, whatever they have
	reports bool   // the caller may charge beyond limits
	looks   bool   // all descriptors are looked at
}

// cells reads the descriptors of a request.
func (s *Server) cells(d *rls.Domain, descriptors []*common.RateLimitDescriptor, p pricing) (cells []cell, ignored bool) {
	cells = make([]cell, len(descriptors))
	var replaced map[string]bool
	for i, own := range descriptors {
		c := &cells[i]
		entries := own.GetEntries()
		if l := own.GetLimit(); l != nil {
			if d.Overrides {
				c.rule = s.overrides.rule(l)
			}
			ignored = ignored || c.rule == nil
		}
		if c.rule == nil {
			if c.claim = rls.Claim(d, entries); c.claim != nil {
				c.rule, c.tenant, c.dims = d.ByPolicy(), c.claim.Tenant, c.claim.Dimensions
				c.price(own, p)
				continue
			}
			c.rule = rls.Match(d, entries)
		}
		if c.rule == nil {
			continue
		}
		for _, name := range c.rule.Replaces {
			if replaced == nil {
				replaced = map[string]bool{}
			}
			replaced[name] = true
		}
		c.tenant = rls.TenantOf(d, c.rule, entries)
		c.dims = rls.Dimensions(nil, c.rule, entries)
		c.price(own, p)
	}
	for i := range cells {
		if c := &cells[i]; c.rule != nil && !c.rule.Unlimited && c.rule.Name != "" && replaced[c.rule.Name] {
			c.rule = nil
		}
	}
	addUp(cells)
	return cells, ignored
}

// addUp joins cells that are checked, refunded or looked at, under the same limit and values. What is charged whatever is left is
// charged one after the other, as envoyproxy/ratelimit does.
func addUp(cells []cell) {
	for i := range cells {
		c := &cells[i]
		c.first = i
		if !c.counted() || c.ask == quota.AskReport {
			continue
		}
		c.first = slices.IndexFunc(cells[:i+1], func(o cell) bool {
			return o.counted() && o.rule == c.rule && o.ask == c.ask && o.free == c.free && o.tenant == c.tenant && slices.Equal(o.dims, c.dims) &&
				(c.claim == nil || o.claim.TenantPolicy == c.claim.TenantPolicy)
		})
		if first := &cells[c.first]; c.first < i && c.ask != quota.AskPeek {
			first.cost = min(first.cost+c.cost, quota.MaxUnits)
		}
	}
	for i := range cells {
		cells[i].cost = cells[cells[i].first].cost
	}
}

// price says what is asked of a cell, and for what cost.
func (c *cell) price(own *common.RateLimitDescriptor, p pricing) {
	cost, hit := max(1, p.hits), own.GetHitsAddend()
	if hit != nil && !p.alone {
		cost = hit.GetValue()
	}
	c.cost = int64(min(cost, uint64(quota.MaxUnits))) //nolint:gosec // MaxUnits fits
	switch {
	case p.looks:
		c.ask, c.cost = quota.AskPeek, 1
	case own.GetIsNegativeHits() && !p.alone:
		c.free = true
		if c.ask = quota.AskRefund; c.cost == 0 {
			c.ask, c.cost = quota.AskPeek, 1
		}
	case c.cost == 0:
		c.ask, c.cost = quota.AskPeek, 1
	case p.reports && (p.charge == region.ChargeAlways || p.charge == region.ChargeWeighted && hit != nil):
		c.ask = quota.AskReport
	}
}

// overrides keeps the rules that came with requests, so that equal ones are one.
type overrides struct {
	mu    sync.Mutex
	rules map[override]*rls.Rule
}

// override is what a rule is made of.
type override struct {
	perUnit    uint32
	unit       int32
	multiplier uint32
}

// maxOverrides bounds the rules that are kept; others are made for each request.
const maxOverrides = 4096

// rule returns the rule of a limit, nil if there cannot be one.
func (o *overrides) rule(l *common.RateLimitDescriptor_RateLimitOverride) *rls.Rule {
	key := override{l.GetRequestsPerUnit(), int32(l.GetUnit()), 1}
	if m := l.GetUnitMultiplier(); m != nil {
		key.multiplier = m.GetValue()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r, known := o.rules[key]
	if known {
		return r
	}
	if r = rls.Override(key.perUnit, key.unit, key.multiplier); len(o.rules) < maxOverrides {
		o.rules[key] = r
	}
	return r
}
