package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// Topology is the regions and weights in force in a region, as its Redis keeps them.
type Topology struct {
	Revision int64          `json:"revision"`
	Weights  []quota.Weight `json:"weights"`
	// Method is how limits are divided by Weights: region.Method, or absent in one written by an earlier release, which
	// rounded running totals.
	Method string `json:"method,omitempty"`
	// Floor is the least shares under earlier revisions that a process may still go by; nil
	// once every process of every region has this one.
	Floor region.Floor `json:"floor,omitempty"`
	// WindowUS is the longest window of a global limit.
	WindowUS int64 `json:"window_us"`
	// Former has the regions that earlier revisions had, until all that they used has aged:
	// the store's TIME, µs.
	Former map[string]int64 `json:"former,omitempty"`
}

// Of is the topology that a file describes.
func Of(top *region.Topology) Topology {
	t := Topology{Revision: top.Revision, Weights: top.Weights(), Method: region.Method}
	for _, p := range top.EveryPolicy() {
		for _, l := range p.Limits {
			if l.Scope == quota.ScopeGlobal {
				t.WindowUS = max(t.WindowUS, l.WindowUS())
			}
		}
	}
	return t
}

// next is what becomes of the topology in force when a process proposes its file's, at
// the store's TIME.
func (t *Topology) next(file Topology, nowUS int64) (Topology, error) {
	same := slices.Equal(t.Weights, file.Weights)
	switch {
	case file.Revision < t.Revision:
		return *t, fmt.Errorf("the topology has revision %d, and revision %d is in force in this region: "+
			"use the newer file, or set revision: %d to put these regions and weights in force", file.Revision, t.Revision, t.Revision+1)
	case file.Revision == t.Revision && !same:
		return *t, fmt.Errorf("the topology has other regions or weights (%s) than are in force in this region (%s), both under revision %d: "+
			"set revision: %d in the file of every region", shares(file.Weights), shares(t.Weights), t.Revision, t.Revision+1)
	}
	file.Floor = t.bounds(file.Weights)
	if file.Revision == t.Revision {
		file.WindowUS, file.Former = max(t.WindowUS, file.WindowUS), t.Former
		return file, nil
	}
	file.Former = maps.Clone(t.Former)
	if file.Former == nil {
		file.Former = map[string]int64{}
	}
	aged := nowUS + 2*max(t.WindowUS, file.WindowUS) // a bucket is no longer than a window
	for _, w := range t.Weights {
		file.Former[w.Region] = aged
	}
	maps.DeleteFunc(file.Former, func(name string, untilUS int64) bool {
		back := slices.ContainsFunc(file.Weights, func(w quota.Weight) bool { return w.Region == name })
		return back || untilUS <= nowUS
	})
	return file, nil
}

// Divides reports whether limits are divided under t as under a file with these weights.
func (t *Topology) Divides(weights []quota.Weight) bool {
	return t.Method == region.Method && slices.Equal(t.Weights, weights)
}

// bounds is the least shares under all topologies of t, as one that goes by weights has to
// keep to; nil when t has no other than these.
func (t *Topology) bounds(weights []quota.Weight) region.Floor {
	if t.Divides(weights) {
		return t.Floor
	}
	return t.Floor.Min(region.FloorOf(t.Weights))
}

func shares(weights []quota.Weight) string {
	var words []string
	for _, w := range weights {
		words = append(words, fmt.Sprintf("%s %d", w.Region, w.Weight))
	}
	return strings.Join(words, ", ")
}

// Unaged names the former regions of which something used may still be in a window at the
// store's TIME.
func (t *Topology) Unaged(nowUS int64) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.Former)), func(name string) bool { return t.Former[name] <= nowUS })
}
