package daemon

import (
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// LimiterConfig is what the limiter of one region enforces.
func LimiterConfig(top *region.Topology, name string, g limiter.Global, processes func() int64) limiter.Config {
	c := limiter.Config{
		Hash:       top.Hash(),
		Region:     name,
		Policies:   top.Policies,
		Tenants:    top.Tenants.Listed,
		Default:    top.Tenants.Default,
		MaxUnknown: int(top.MaxUnknown),
		Global:     g,
		Processes:  processes,
	}
	if f := top.ForwardAuth; f != nil {
		c.Dimensions = append(c.Dimensions, quota.RouteDimension)
		for _, d := range f.Dimensions {
			c.Dimensions = append(c.Dimensions, d.Name)
		}
	}
	return c
}
