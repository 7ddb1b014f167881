package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/quota"
)

// MaxDemand bounds what the slider of the page asks for, in requests a second of all regions
// and of each tenant that the demo makes traffic of.
const MaxDemand = 60

// Demand is how many requests a second the demo makes. Safe for concurrent use.
type Demand struct{ rate atomic.Int64 }

// NewDemand is what Rates add up to.
func NewDemand() *Demand {
	d := &Demand{}
	d.rate.Store(usualDemand())
	return d
}

func usualDemand() (sum int64) {
	for _, r := range Rates() {
		sum += int64(r)
	}
	return sum
}

// Rate is requests a second, of all regions together.
func (d *Demand) Rate() int64 { return d.rate.Load() }

// Set takes a number of requests a second.
func (d *Demand) Set(rate string) error {
	n, err := strconv.ParseInt(rate, 10, 64)
	if err != nil || n < 1 || n > MaxDemand {
		return fmt.Errorf("the demand is 1 to %d requests a second, not %.32q", MaxDemand, rate)
	}
	d.rate.Store(n)
	return nil
}

// interval is the time between two requests of a region, whose part of the demand stays the same.
func (d *Demand) interval(region int) time.Duration {
	return time.Second * time.Duration(usualDemand()) / time.Duration(int64(Rates()[region])*d.Rate())
}

// PageState is what the page shows of the demo.
type PageState struct {
	Tenant    string     `json:"tenant"` // of the estimated limit
	Strict    string     `json:"strict"` // tenant of the strict one
	Limit     string     `json:"limit"`  // the name of the estimated limit
	Units     int64      `json:"units"`  // of both limits, in the configuration
	WindowMS  int64      `json:"window_ms"`
	Demand    int64      `json:"demand"` // requests a second of each tenant
	MaxDemand int64      `json:"max_demand"`
	Quiet     bool       `json:"quiet"` // no traffic is made
	Most      Most       `json:"most"`
	Cut       []string   `json:"cut"`
	Regions   []PageSite `json:"regions"`
}

// PageSite is what one region knows.
type PageSite struct {
	Region      string            `json:"region"`
	Cut         bool              `json:"cut"`
	Mode        string            `json:"mode"`
	Reason      string            `json:"reason,omitempty"`
	Asked       Asked             `json:"asked"`        // of the estimated limit
	StrictAsked Asked             `json:"strict_asked"` // and of the strict one
	Units       int64             `json:"units"`        // of the estimated limit, by which this region goes now
	Used        int64             `json:"used"`         // of the estimated limit in its window, by this region
	Ceiling     int64             `json:"ceiling"`      // what this region may use of it now
	Strict      int64             `json:"strict"`       // used of the strict limit
	Bound       *quota.BoundTerms `json:"bound,omitempty"`
	Fresh       []string          `json:"-"` // regions that it counts on
}

// Asked is how a region has answered what asked for a limit in the last second, in requests.
type Asked struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
}

// Most is the most that all regions together have used of each limit in any window that was looked at.
type Most struct {
	Estimated int64 `json:"estimated"`
	Strict    int64 `json:"strict"`
}

// state is what the page shows now, with the modes, the cuts and the demand of this moment; nil before the first look.
func (c *cluster) state() any {
	shown := c.shown.Load()
	if shown == nil {
		return nil
	}
	s := *shown
	s.Cut, s.Demand = c.cuts.Off(), c.demand.Rate()
	s.Regions = slices.Clone(shown.Regions)
	for i := range s.Regions {
		site := &s.Regions[i]
		site.Cut = slices.Contains(s.Cut, site.Region)
		seen, err := c.nodes[i].Peek(context.Background(), quota.Request{Tenant: Busy, Cost: 1})
		if err == nil { // else that of the last second stands
			site.Mode, site.Reason, site.Units = seen.Mode.String(), seen.Reason.String(), unitsOf(&seen)
		}
	}
	return &s
}

// unitsOf is L of the limit that a decision is about.
func unitsOf(d *quota.Decision) int64 {
	if len(d.Limits) == 0 {
		return 0
	}
	return d.Limits[0].Limit.Units
}
