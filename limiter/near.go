package limiter

import (
	"maps"
	"sync"
	"time"

	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// nears remembers for which tenants a limit is near, so that it is logged once until what they used has aged out.
type nears struct {
	lines *loglimit.Rate

	mu     sync.Mutex
	until  map[nearKey]time.Time
	pruned time.Time
}

// nearKey is a limit of a tenant: of the values that it counts apart only the first is logged.
type nearKey struct{ tenant, policy, limit string }

// Bounds of nears: what a process remembers, and how fast it logs.
const (
	maxNears   = 1 << 14
	pruneEvery = time.Second
	nearsBurst = 100
	nearsEvery = 100 * time.Millisecond
)

func newNears() *nears {
	return &nears{lines: loglimit.NewRate(nearsBurst, nearsEvery), until: map[nearKey]time.Time{}}
}

// begins reports whether a limit was not near before, and remembers that it is, for so long.
func (n *nears) begins(k nearKey, now time.Time, lasts time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Before(n.until[k]) {
		return false
	}
	if len(n.until) >= maxNears && now.Sub(n.pruned) >= pruneEvery {
		n.pruned = now
		maps.DeleteFunc(n.until, func(_ nearKey, until time.Time) bool { return !now.Before(until) })
	}
	if len(n.until) >= maxNears {
		return false
	}
	n.until[k] = now.Add(lasts)
	return true
}

// noteNear logs and counts the limits that an allowed decision shows to be near for its tenant.
func (l *Limiter) noteNear(q *query, d *quota.Decision) {
	if !d.Allowed || d.Replayed || q.looks() || q.call.Op == store.OpRefund || d.Basis != quota.BasisExact && d.Basis != quota.BasisEstimate {
		return
	}
	for i := range d.Limits {
		s := &d.Limits[i]
		if s.Limit.Near == 0 || !q.concerns(d.Limits) || !q.isNear(i, s) {
			continue
		}
		now, lasts := l.now(), s.ResetAfter
		if s.Limit.Algorithm == quota.GCRA { // which drains sooner
			lasts = max(lasts, s.Limit.Window)
		}
		if !l.nears.begins(nearKey{d.Tenant, d.Policy, s.Limit.Name}, now, lasts) {
			continue
		}
		l.metrics.near.Add(labels{policy: d.Policy, limit: s.Limit.Name}, 1)
		args := []any{
			"tenant", d.Tenant, "policy", d.Policy, "limit", s.Limit.Name, "used", s.Used(), "remaining", max(0, s.Remaining),
			"units", s.Limit.Capacity(), "window", s.Limit.Per(),
		}
		for _, dim := range q.request.Dimensions {
			args = append(args, "dim."+dim.Name, dim.Value)
		}
		l.nears.lines.Warn(l.log, now, "", "a tenant is near a limit", args...)
	}
}

// isNear reports whether a limit, the i-th of the policy's that apply, is near: by what all regions used, where the region sees
// them, and otherwise by its own share. What a bound leaves is not asked: loans come as they are needed.
func (q *query) isNear(i int, s *quota.LimitState) bool {
	full, most := s.Limit.Capacity(), s.Limit.Capacity()
	for place, g := range q.globals() {
		if q.limits.keys.Order[place] == i {
			most = g.Units
			if g.Mode != quota.ModeGlobal {
				full = most
			}
		}
	}
	return float64(most-s.Used()) <= float64(full)*(100-s.Limit.Near)/100
}
