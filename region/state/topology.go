package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
)

// Topology is the regions and weights in force in a region, as its Redis keeps them.
type Topology struct {
	Revision int64          `json:"revision"`
	Weights  []quota.Weight `json:"weights"`
	// Floor is the least shares under earlier revisions that a process may still go by; nil
	// once every process of every region has this one.
	Floor region.Floor `json:"floor,omitempty"`
	// AgreedUS is the store's TIME from which on every process of every region has these weights; 0 while that is not known.
	// It is later by each time in which nobody watched the store's clock.
	// Floor then bounds for as long as what was used before may count, also in a process that starts meanwhile.
	AgreedUS int64 `json:"agreed_us,omitempty"`
	// WindowUS is the longest window of a global limit.
	WindowUS int64 `json:"window_us"`
	// Windows are those of limits with a bound, by policy.limit.
	Windows map[string]Window `json:"windows,omitempty"`
	// Former has the regions that earlier revisions had, until all that they used has aged:
	// the store's TIME, µs.
	Former map[string]int64 `json:"former,omitempty"`
}

// Window is the longest window of a limit in any process of the region, and the longest that a reservation holds units of it.
type Window struct {
	US       int64 `json:"us"`
	MaxTTLUS int64 `json:"max_ttl_us,omitempty"`
	// UntilUS is the store's TIME until which loans under it may matter if no data are lost; 0 while a process has it.
	UntilUS int64 `json:"until_us,omitempty"`
}

// Of is the topology that a file describes.
func Of(top *region.Topology) Topology {
	t := Topology{Revision: top.Revision, Weights: top.Weights(), Windows: map[string]Window{}}
	for _, p := range top.EveryPolicy() {
		for _, l := range p.Limits {
			if l.Scope == quota.ScopeGlobal {
				t.WindowUS = max(t.WindowUS, l.WindowUS())
			}
			if l.MaxOvershoot > 0 {
				t.Windows[p.Name+"."+l.Name] = Window{US: loan.TermsOfLimit(&l).Window, MaxTTLUS: l.HeldFor.Microseconds()}
			}
		}
	}
	return t
}

// ErrAlone refuses a reload that adds a region where there was one without gossip.
var ErrAlone = errors.New("a second region needs a restart: a process that starts alone makes no connection to others")

// Refusal is why a reload from one file refuses another; nil when it takes it.
func Refusal(inForce, file *region.Topology) error {
	if len(inForce.Regions) == 1 && inForce.Regions[0].Gossip == nil && len(file.Regions) > 1 {
		return ErrAlone
	}
	before := Of(inForce)
	_, err := before.next(Of(file), 0, 0, false)
	return err
}

// next is what becomes of the topology in force when a process proposes its file's, at
// the store's TIME. lostUS is that of the last loss; adopts: the file is new to the process.
func (t *Topology) next(file Topology, nowUS, lostUS int64, adopts bool) (Topology, error) {
	same := slices.Equal(t.Weights, file.Weights)
	switch {
	case file.Revision < t.Revision:
		return *t, fmt.Errorf("the topology has revision %d, and revision %d is in force in this region: "+
			"use the newer file, or set revision: %d to put these regions and weights in force", file.Revision, t.Revision, t.Revision+1)
	case file.Revision == t.Revision && !same:
		return *t, fmt.Errorf("the topology has other regions or weights (%s) than are in force in this region (%s), both under revision %d: "+
			"set revision: %d in the file of every region", shares(file.Weights), shares(t.Weights), t.Revision, t.Revision+1)
	}
	if same && t.Floor != nil {
		file.AgreedUS = t.AgreedUS
	}
	file.Floor, file.Windows = t.bounds(file.Weights), t.windows(file.Windows, nowUS, lostUS, adopts)
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

// windows are those of a file, and longer ones or longer reservations of t for as long as loans under them may matter. A process that has such
// a one keeps it without end, and ends it when it adopts a shorter one. A loss may be a step of TIME beyond that end: then loans
// that were made before it can be used for as long as any.
func (t *Topology) windows(file map[string]Window, nowUS, lostUS int64, adopts bool) map[string]Window {
	file = maps.Clone(file)
	for name, w := range t.Windows {
		own := file[name]
		if w.US <= own.US && w.MaxTTLUS <= own.MaxTTLUS {
			continue
		}
		w.US, w.MaxTTLUS = max(w.US, own.US), max(w.MaxTTLUS, own.MaxTTLUS)
		if adopts {
			w.UntilUS = nowUS + loan.TermsOf(w.US).Holding(w.MaxTTLUS).Keep()
		}
		if w.UntilUS == 0 || max(w.UntilUS, lostUS+loan.TermsOf(own.US).Holding(w.MaxTTLUS).KeepAny()) > nowUS {
			file[name] = w
		}
	}
	return file
}

// bounds is the least shares under all topologies of t, as one that goes by weights has to
// keep to; nil when t has no other than these.
func (t *Topology) bounds(weights []quota.Weight) region.Floor {
	if slices.Equal(t.Weights, weights) {
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
