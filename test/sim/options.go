package sim

import (
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// Options are what a World is made of. Only Seed may be zero; New panics over a policy that is none.
type Options struct {
	// Seed decides everything that is left to chance: delays, losses, boots.
	Seed uint64
	// Regions stand in topology order; at least one.
	Regions []RegionOptions
	// Policies are in force from the start; at least one.
	Policies []quota.Policy
	// Tenants has the policy of each tenant by name; one that is not named has the
	// first policy.
	Tenants map[string]string
	// Delay is what a message takes from one region to another, one way; 0 means
	// DefaultDelay. Jitter is the most that chance adds.
	Delay, Jitter time.Duration
	// Delays overrides Delay for pairs of regions, by their places; 0 does not.
	Delays [][]time.Duration
	// Lossy keeps what is needed to have a store lose its latest writes. It costs
	// memory for each admission.
	Lossy bool
	// MaxSeries bounds what each process knows; 0 means the ledger's default.
	MaxSeries int
	// LoanStep is the least time between two steps of a tender; 0 is the product's.
	LoanStep time.Duration
	// AllTend has each process of a region plan its loans, as if they did not know of each
	// other, and Folly has them lend and return at random too: any policy is safe.
	AllTend, Folly bool
	// Slow has calls to stores take 3 ms, and now and then up to 200 ms, where limits have a bound.
	Slow bool
	// Perfect has each unit count for a window after it was received, by a log in place of the ledger.
	Perfect bool
	// Overridden has tenants have overrides, which the world sets.
	Overridden bool
	// Judged checks every invariant of doc.go. It is for worlds of a few regions.
	Judged bool
}

// RegionOptions is one region.
type RegionOptions struct {
	Name   string
	Weight int64         // 0 means 1
	Skew   time.Duration // its store clock minus true time
	// Processes is how many regiond processes serve it at first; 0 means 1.
	Processes int
	// PacePPM is by how much the store's clock goes faster than true time.
	PacePPM int64
	// Absent: the region is not there at first.
	Absent bool
}

const (
	// DefaultDelay is half of a round trip between continents.
	DefaultDelay = 80 * time.Millisecond
	// nearby is what a message takes from one process to another of its region.
	nearby = time.Millisecond
)

func (o *Options) policy(name string) *quota.Policy {
	for i := range o.Policies {
		if o.Policies[i].Name == name {
			return &o.Policies[i]
		}
	}
	return nil
}

// policyOf is the policy of a tenant.
func (o *Options) policyOf(tenant string) *quota.Policy {
	if p := o.policy(o.Tenants[tenant]); p != nil {
		return p
	}
	return &o.Policies[0]
}

// topology is what topology.yaml would say.
func (o *Options) topology() *region.Topology {
	t := &region.Topology{Cluster: "sim", Policies: o.Policies, MaxUnknown: region.DefaultMaxUnknown, MaxValues: region.DefaultMaxValues}
	for i := range o.Regions {
		r := &o.Regions[i]
		if r.Absent {
			continue
		}
		t.Regions = append(t.Regions, region.Region{Name: r.Name, Weight: max(1, r.Weight), Redis: region.Redis{Embedded: true}})
	}
	t.Tenants.Default = &quota.Tenant{Policy: o.Policies[0].Name}
	t.Tenants.Listed = make(map[string]quota.Tenant, len(o.Tenants))
	for tenant, policy := range o.Tenants {
		t.Tenants.Listed[tenant] = quota.Tenant{Policy: policy}
	}
	return t
}

// delay is the usual one from one region to another.
func (o *Options) delay(from, to int) time.Duration {
	if from == to {
		return nearby
	}
	if from < len(o.Delays) && to < len(o.Delays[from]) && o.Delays[from][to] > 0 {
		return o.Delays[from][to]
	}
	if o.Delay > 0 {
		return o.Delay
	}
	return DefaultDelay
}
