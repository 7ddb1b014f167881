package view

import (
	"math"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// limitIndex is what the ledger and the view need of a topology. Immutable.
type limitIndex struct {
	topology Topology
	names    map[*quota.Limit]string // of global limits, "<policy>.<limit>"
	limits   map[string]*quota.Limit // by that name
	bounded  []string                // the names of those with a bound
	lowered  map[string]lowered
	times    int64 // how many times its units an override may give a limit
}

// lowered is a limit as it was before a reload lowered it. What peers had used under it counts on
// for as long as its buckets do.
type lowered struct {
	limit *quota.Limit
	until time.Duration
}

func newLimitIndex(top *region.Topology) *limitIndex {
	x := &limitIndex{names: map[*quota.Limit]string{}, limits: map[string]*quota.Limit{}, lowered: map[string]lowered{}}
	x.times = top.MostOverride()
	x.topology.Weights = top.Weights()
	for _, p := range top.EveryPolicy() {
		for j := range p.Limits {
			l := &p.Limits[j]
			if l.Scope != quota.ScopeGlobal {
				continue
			}
			name := limitName(p.Name, l.Name)
			x.names[l], x.limits[name] = name, l
			x.topology.Units = append(x.topology.Units, l.Units)
			if units, ok := l.Bound(); ok {
				x.topology.Units = append(x.topology.Units, units)
				x.bounded = append(x.bounded, name)
			}
		}
	}
	return x
}

// nameOf is the name of a limit of a policy.
func (x *limitIndex) nameOf(policy string, l *quota.Limit) string {
	if name, ok := x.names[l]; ok {
		return name
	}
	return limitName(policy, l.Name) // under an override, or of a configuration that is being replaced
}

// mostOf is how many units one region may admit under a limit in a window.
func mostOf(l *quota.Limit) int64 {
	bound, _ := l.Bound()
	return max(l.Units, bound)
}

// keepLowered takes over what the limits of an earlier index were lowered from. One that is lowered
// again keeps its largest form until the last of its forms is over.
func (x *limitIndex) keepLowered(before *limitIndex, now time.Duration) {
	for name, l := range x.limits {
		was, ok := before.limits[name]
		if !ok {
			continue
		}
		former := lowered{was, now + 2*was.Window}
		if low, ok := before.lowered[name]; ok && now < low.until {
			if former.until = max(former.until, low.until); mostOf(low.limit) > mostOf(was) {
				former.limit = low.limit
			}
		}
		if mostOf(former.limit) > mostOf(l) {
			x.lowered[name] = former
		}
	}
}

// largest is a limit as it was when most could be used of what still counts.
func (x *limitIndex) largest(l *quota.Limit, now time.Duration) *quota.Limit {
	if low, ok := x.lowered[x.names[l]]; ok && now < low.until {
		return low.limit
	}
	return l
}

// most is how many units one region may admit under a limit in a bucket: a window that is
// kept as two counters or as a rate can hold as many again. units are those that our region goes by for the partition, 0 where
// that is not known: then an override may be in force.
func (x *limitIndex) most(name string, units int64, now time.Duration) int64 {
	l, ok := x.limits[name]
	if !ok {
		return math.MaxInt64 // it may be in force elsewhere
	}
	under := *x.largest(l, now)
	if units == 0 {
		units = under.MostUnder(x.times)
	}
	if under.Units = max(units, under.Units); under.Algorithm == quota.SlidingLog || under.Calendar != nil {
		return mostOf(&under)
	}
	return 2 * under.Units
}

func limitName(policy, limit string) string { return policy + "." + limit }
