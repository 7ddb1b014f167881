package daemon

import (
	"maps"
	"slices"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/region"
)

// LimiterConfig is what the limiter of one region enforces.
func LimiterConfig(top *region.Topology, name string, g limiter.Global, processes func() int64) limiter.Config {
	c := limiter.Config{
		Hash:       top.Hash(),
		Region:     name,
		Policies:   top.Policies,
		Tenants:    make(map[string]limiter.Tenant, len(top.Tenants.Listed)),
		MaxUnknown: int(top.MaxUnknown),
		Global:     g,
		Processes:  processes,
	}
	for id, t := range top.Tenants.Listed {
		c.Tenants[id] = limiter.Tenant(t)
	}
	if f := top.ForwardAuth; f != nil {
		c.Dimensions = append(slices.Collect(maps.Keys(f.Dimensions)), region.RouteDimension)
	}
	if d := top.Tenants.Default; d != nil {
		t := limiter.Tenant(*d)
		c.Default = &t
	}
	return c
}
