package sim

import (
	"fmt"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// boundJudge holds limits that have a bound to it: every window of all regions together,
// in true time, whatever has happened. A window is shorter than the limit's by what a clock
// may be fast and step without anything following, and by nothing else.
type boundJudge struct {
	w       *World
	tenants map[string]*trueWindow
	order   []*trueWindow
	broken  []Violation
	seen    map[string][]sighting // by tenant
	periods map[int64]int64       // of the one tenant whose limit has a calendar: units by the number of the period
}

// trueWindow is what all regions admitted of one tenant in the window that ends now.
type trueWindow struct {
	tenant string
	width  time.Duration
	all    []spend
	first  int
	units  int64
	holds  []*holding
	since  time.Duration // when played was added to last
	played time.Duration // for how long the window was full
}

const (
	// pacePPM is how far clocks of a StrictPlan may be from true, in millionths, and fastPPM by how much they may be fast
	// without windows being longer.
	pacePPM, fastPPM = quota.RatePPM, 500
	// unseen is by how much a clock may step and nothing follows: of two clocks loan.Terms.Slack makes up for it.
	unseen = 100 * time.Millisecond
)

// full is the part of the bound, in tenths, from which on a window counts as full: from
// there on a mistake of a tenth shows.
const full = 9

func newBoundJudge(w *World) *boundJudge {
	return &boundJudge{w: w, tenants: map[string]*trueWindow{}, seen: map[string][]sighting{}}
}

// window is that of a tenant now, nil if it has no bound.
func (j *boundJudge) window(tenant string) *trueWindow {
	policy := j.w.o.policyOf(tenant).Name
	if j.w.bounds.of(policy).units == 0 {
		return nil
	}
	t := j.tenants[tenant]
	if t == nil {
		t = &trueWindow{tenant: tenant, since: j.w.now}
		j.tenants[tenant], j.order = t, append(j.order, t)
	}
	t.age(j.w.now, j.promised(tenant))
	return t
}

func (t *trueWindow) add(u spend) {
	t.all = append(t.all, u)
	t.units += u.units
}

// admitted judges an admission.
func (j *boundJudge) admitted(p *process, tenant string, units int64) {
	policy := j.w.o.policyOf(tenant).Name
	if l := j.w.bounds.of(policy).limit; l != nil && l.Calendar != nil {
		j.inPeriod(p, tenant, l, units)
		return
	}
	if t := j.window(tenant); t != nil {
		t.add(spend{at: j.w.now, units: units, place: p.region.place})
		j.judge(p, t)
	}
}

// inPeriod judges an admission under a limit with a calendar: what all regions admitted in the period that each one's own clock showed.
func (j *boundJudge) inPeriod(p *process, tenant string, l *quota.Limit, units int64) {
	number := l.Calendar.At(p.region.nowUS()).Number
	if j.periods == nil {
		j.periods = map[int64]int64{}
	}
	j.periods[number] += units
	if bound, _ := l.Bound(); j.periods[number] > bound && len(j.broken) == 0 {
		j.broken = append(j.broken, Violation{
			Name: "B-1 bound", At: j.w.now, Last: j.w.trace.last(),
			Text: fmt.Sprintf("%s/%s: %s: in period %d all regions admitted %d, the bound is %d", p.self.Region, p.self.Instance, tenant, number, j.periods[number], bound),
		})
	}
}

// judge holds a window to its bound, after something of it has changed by a process.
func (j *boundJudge) judge(p *process, t *trueWindow) {
	bound, held := j.promised(t.tenant).units, t.held(j.w.now)
	if t.units+held > bound && len(j.broken) == 0 {
		j.broken = append(j.broken, Violation{
			Name: "B-1 bound", At: j.w.now, Last: j.w.trace.last(), Text: fmt.Sprintf("%s/%s: %s: all regions admitted %d in %v and hold %d, the bound is %d; seen were %v",
				p.self.Region, p.self.Instance, t.tenant, t.units, t.width, held, bound, j.seen[t.tenant]),
		})
	}
}

// reset forgets what a region has admitted of a tenant.
func (j *boundJudge) reset(s *simRegion, tenant string) {
	t := j.tenants[tenant]
	if t == nil {
		return
	}
	t.age(j.w.now, j.promised(tenant))
	j.ended(s, tenant)
	for i := t.first; i < len(t.all); i++ {
		if u := &t.all[i]; u.place == s.place {
			t.units, u.units = t.units-u.units, 0
		}
	}
}

// age moves the window on to now.
func (t *trueWindow) age(now time.Duration, bound promise) {
	t.width = bound.window - bound.window*fastPPM/1_000_000 - unseen
	pass := func(at time.Duration) {
		if 10*(t.units+t.held(at)) >= full*bound.units {
			t.played += at - t.since
		}
		t.since = at
	}
	for t.first < len(t.all) && t.all[t.first].at <= now-t.width {
		pass(t.all[t.first].at + t.width)
		t.units -= t.all[t.first].units
		t.first++
	}
	if t.first > 4096 && t.first > len(t.all)/2 {
		t.all, t.first = append(t.all[:0], t.all[t.first:]...), 0
	}
	pass(now)
}

// played is for how long some limit was so used that a mistake would show: of all tenants
// the one of which that was longest.
func (j *boundJudge) played() (longest time.Duration) {
	for _, t := range j.order {
		t.age(j.w.now, j.promised(t.tenant))
		longest = max(longest, t.played)
	}
	return longest
}

// bounds is what each policy promises; while that changes what holds of both.
type bounds struct {
	w         *World
	now, next map[string]promise // next is nil when nothing changes
}

// promise is B units in each window, of which reservations hold some for so long at most.
type promise struct {
	units           int64
	window, heldFor time.Duration
	limit           *quota.Limit
}

func boundsOf(top *region.Topology) map[string]promise {
	all := map[string]promise{}
	for i := range top.Policies {
		l := &top.Policies[i].Limits[0]
		if units, ok := l.Bound(); ok {
			all[top.Policies[i].Name] = promise{units, l.Window, l.HeldFor, l}
		}
	}
	return all
}

// of is zero for a policy without a bound.
func (b *bounds) of(policy string) promise {
	p := b.now[policy]
	if next, changes := b.next[policy]; changes {
		p = promise{max(p.units, next.units), min(p.window, next.window), max(p.heldFor, next.heldFor), nil}
	}
	return p
}

// keep is how long what was used and lent before may matter, by whichever clock.
func (b *bounds) keep() (longest time.Duration) {
	for policy := range b.now {
		longest = max(longest, b.keepOf(policy))
	}
	return longest
}

// settle has the next bounds hold alone.
func (b *bounds) settle() { b.now, b.next = b.next, nil }
