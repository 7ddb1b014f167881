package limiter

import (
	"maps"
	"math"
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
	all    map[nearKey]near
	pruned time.Time
}

// nearKey is a limit of a tenant, with its units: who got more comes near these anew. Of the values that it counts apart only the
// first is logged.
type nearKey struct {
	tenant, policy, limit string
	units                 int64
}

type near struct {
	until  time.Time
	logged bool // or there was no room yet for its line
}

// Bounds of nears: what a process remembers, and how fast it logs.
const (
	maxNears   = 1 << 14
	pruneEvery = time.Second
	nearsBurst = 100
	nearsEvery = 100 * time.Millisecond
)

func newNears() *nears {
	return &nears{lines: loglimit.NewRate(nearsBurst, nearsEvery), all: map[nearKey]near{}}
}

// note remembers that a limit is near, for so long. It reports whether it was not before, and whether to log its line now.
func (n *nears) note(k nearKey, now time.Time, lasts time.Duration) (begins, log bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.all[k]
	if begins = !now.Before(e.until); begins {
		if len(n.all) >= maxNears && now.Sub(n.pruned) >= pruneEvery {
			n.pruned = now
			maps.DeleteFunc(n.all, func(_ nearKey, e near) bool { return !now.Before(e.until) })
		}
		if len(n.all) >= maxNears {
			return false, false
		}
		e = near{until: now.Add(lasts)}
	}
	if !e.logged {
		_, e.logged = n.lines.Pass("", now)
		log = e.logged
	}
	n.all[k] = e
	return begins, log
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
		if s.Limit.Calendar == nil { // a level drains sooner, and so does what this region used where others used the most
			lasts = max(lasts, s.Limit.Window)
		}
		begins, log := l.nears.note(nearKey{d.Tenant, d.Policy, s.Limit.Name, s.Limit.Units}, now, lasts)
		if begins {
			l.metrics.near.Add(labels{policy: d.Policy, limit: s.Limit.Name}, 1)
		}
		if !log {
			continue
		}
		args := []any{
			"tenant", d.Tenant, "policy", d.Policy, "limit", s.Limit.Name, "used", s.Used(), "remaining", max(0, s.Remaining),
			"units", s.Limit.Capacity(), "window", s.Limit.Per(),
		}
		for _, dim := range q.request.Dimensions {
			args = append(args, "dim."+dim.Name, dim.Value)
		}
		l.log.Warn("a tenant is near a limit", args...)
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
	mark := math.Ceil(float64(full)*s.Limit.Near/100 - 1e-6) // 99.9 is a little more in binary
	return float64(full-most+s.Used()) >= mark
}
