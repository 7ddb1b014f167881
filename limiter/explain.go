package limiter

import (
	"fmt"

	"github.com/regiond/regiond/quota"
)

// explain adds the terms behind a decision when the request asks for them.
func (l *Limiter) explain(rules *rules, q *query, d *quota.Decision) {
	if !q.request.Explain {
		return
	}
	e := &quota.Explanation{
		Region: rules.Region, ConfigHash: rules.Hash, StoreUS: d.StoreUS,
		Limits: make([]quota.LimitExplanation, len(d.Limits)),
	}
	for i := range d.Limits {
		at := q.limits.keys.order[i]
		limit := q.limits.keys.limits[i]
		t := &e.Limits[at]
		*t = quota.LimitExplanation{
			Name: limit.Name, Algorithm: limit.Algorithm.String(), Partition: q.call.Keys[q.limits.keys.keyOf(i)],
			Ceiling: d.Limits[at].Ceiling, CeilingTerms: quota.CeilingTerms{
				Part:    limit.Capacity(),
				Formula: fmt.Sprintf("the whole limit, %d units in %v", limit.Capacity(), limit.Window),
			},
		}
		if q.ceilings != nil && q.ceilings[i].Terms != nil {
			t.CeilingTerms = *q.ceilings[i].Terms
		}
		if q.processes > 1 {
			t.Formula += fmt.Sprintf(", ÷ %d processes", q.processes)
		}
	}
	d.Explanation = e
}

// keyOf returns which key the i-th limit is asked of.
func (s *KeyPlan) keyOf(i int) int {
	for k := range s.keys {
		if i -= len(s.keys[k].limits); i < 0 {
			return k
		}
	}
	return len(s.keys) - 1
}
