package limiter

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/quota"
)

// decisionLabels are the labels of regiond_decisions_total: bounded by the policies
// of the topology, never a tenant.
type decisionLabels struct {
	policy   string
	decision string
	basis    quota.Basis
	mode     quota.Mode
	reason   quota.Reason
}

func (l decisionLabels) set() attribute.Set {
	attrs := []attribute.KeyValue{
		attribute.String("policy", l.policy), attribute.String("decision", l.decision),
		attribute.String("basis", l.basis.String()), attribute.String("mode", l.mode.String()),
	}
	if l.reason != quota.ReasonNone {
		attrs = append(attrs, attribute.String("reason", l.reason.String()))
	}
	return attribute.NewSet(attrs...)
}

// limitLabels are the labels of what is counted by limit.
type limitLabels struct{ policy, limit string }

func (l limitLabels) set() attribute.Set {
	return attribute.NewSet(attribute.String("policy", l.policy), attribute.String("limit", l.limit))
}

// labels can be made into an attribute set.
type labels interface {
	comparable
	set() attribute.Set
}

// labelSets remembers the attribute set of each combination of labels that was ever
// counted, so that a decision builds none: one map lookup, no lock, no allocation.
// Safe for concurrent use.
type labelSets[L labels] struct {
	sets atomic.Pointer[map[L][]metric.AddOption] // replaced, never changed

	mu sync.Mutex // of those who replace it
}

// of returns the options that count under l.
func (s *labelSets[L]) of(l L) []metric.AddOption {
	if known := s.sets.Load(); known != nil {
		if options, ok := (*known)[l]; ok {
			return options
		}
	}
	return s.learn(l)
}

func (s *labelSets[L]) learn(l L) []metric.AddOption {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[L][]metric.AddOption)
	if known := s.sets.Load(); known != nil {
		maps.Copy(next, *known)
	}
	options, ok := next[l]
	if !ok {
		options = []metric.AddOption{metric.WithAttributeSet(l.set())}
		next[l] = options
		s.sets.Store(&next)
	}
	return options
}

// keep forgets the combinations that are not wanted any more.
func (s *labelSets[L]) keep(wanted func(L) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sets.Load()
	if known == nil {
		return
	}
	next := maps.Clone(*known)
	maps.DeleteFunc(next, func(l L, _ []metric.AddOption) bool { return !wanted(l) })
	s.sets.Store(&next)
}
