package limiter

import (
	"math"
	"time"

	"github.com/regiond/regiond/internal/base/expiring"
	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// nears remembers for which tenants a limit is near, so that it is logged once until what they used has aged out.
type nears struct {
	lines *loglimit.Rate
	all   *expiring.Map[nearKey, bool] // whether it is logged, or there was no room yet for its line
}

// nearKey is a limit of a tenant, with its units: who got more comes near these anew. Of the values that it counts apart only the
// first is logged.
type nearKey struct {
	tenant, policy, limit string
	units                 int64
}

// Bounds of nears: what a process remembers, and how fast it logs.
const (
	maxNears   = 1 << 14
	nearsBurst = 100
	nearsEvery = 100 * time.Millisecond
)

func newNears() *nears {
	return &nears{lines: loglimit.NewRate(nearsBurst, nearsEvery), all: expiring.NewSmall[nearKey, bool](maxNears)}
}

// note remembers that a limit is near, for so long from nowUS. It reports whether it was not before, and whether to log its line now.
func (n *nears) note(k nearKey, now time.Time, nowUS int64, lasts time.Duration) (begins, log bool) {
	s := n.all.Shard(0)
	s.Lock()
	defer s.Unlock()
	begins = s.Get(k, nowUS) == nil
	e := s.Hold(k, nowUS)
	if e == nil {
		return false, false
	}
	if begins {
		e.Ends = nowUS + lasts.Microseconds()
	}
	if !e.Value {
		_, e.Value = n.lines.Pass("", now)
		log = e.Value
	}
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
		lasts := s.ResetAfter
		if s.Limit.Calendar == nil { // a level drains sooner, and so does what this region used where others used the most
			lasts = max(lasts, s.Limit.Window)
		}
		begins, log := l.nears.note(nearKey{d.Tenant, d.Policy, s.Limit.Name, s.Limit.Units}, l.now(), l.localUS(), lasts)
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
