package sim

import (
	"fmt"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
)

// boundJudge holds limits that have a bound to it: every window of all regions together,
// in true time, whatever has happened. A window is shorter than the limit's by the rate
// error that clocks may have, and by nothing else.
type boundJudge struct {
	w       *World
	tenants map[string]*trueWindow
	order   []*trueWindow
	broken  []Violation
}

// trueWindow is what all regions admitted of one tenant in the window that ends now.
type trueWindow struct {
	tenant, policy string
	width          time.Duration
	all            []spend
	first          int
	units          int64
	since          time.Duration // when played was added to last
	played         time.Duration // for how long the window was full
}

// pacePPM is how far clocks of a StrictPlan may be from true, in millionths.
const pacePPM = 500

// full is the part of the bound, in tenths, from which on a window counts as full: from
// there on a mistake of a tenth shows.
const full = 9

func newBoundJudge(w *World) *boundJudge {
	return &boundJudge{w: w, tenants: map[string]*trueWindow{}}
}

// admitted judges an admission.
func (j *boundJudge) admitted(p *process, tenant string, units int64) {
	policy := j.w.o.policyOf(tenant).Name
	if j.w.bounds.of(policy) == 0 {
		return
	}
	t := j.tenants[tenant]
	if t == nil {
		width := j.w.o.policy(policy).Limits[0].Window
		t = &trueWindow{tenant: tenant, policy: policy, width: width - width*pacePPM/1_000_000, since: j.w.now}
		j.tenants[tenant], j.order = t, append(j.order, t)
	}
	bound := j.w.bounds.of(policy)
	t.age(j.w.now, bound)
	t.all = append(t.all, spend{at: j.w.now, units: units})
	if t.units += units; t.units > bound && len(j.broken) == 0 {
		j.broken = append(j.broken, Violation{
			Name: "B-1 bound", At: j.w.now, Last: j.w.trace.last(),
			Text: fmt.Sprintf("%s/%s: %s: all regions admitted %d in %v, the bound is %d", p.self.Region, p.self.Instance, tenant, t.units, t.width, bound),
		})
	}
}

// age moves the window on to now.
func (t *trueWindow) age(now time.Duration, bound int64) {
	pass := func(at time.Duration) {
		if 10*t.units >= full*bound {
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
		t.age(j.w.now, j.w.bounds.of(t.policy))
		longest = max(longest, t.played)
	}
	return longest
}

// bounds is B of each policy; while units change the larger.
type bounds struct {
	w         *World
	now, next map[string]int64 // next is nil when nothing changes
}

func boundsOf(top *region.Topology) map[string]int64 {
	all := map[string]int64{}
	for i := range top.Policies {
		if units, ok := top.Policies[i].Limits[0].Bound(); ok {
			all[top.Policies[i].Name] = units
		}
	}
	return all
}

// of is 0 for a policy without a bound.
func (b *bounds) of(policy string) int64 { return max(b.now[policy], b.next[policy]) }

// keep is how long what was used and lent before may matter, by whichever clock.
func (b *bounds) keep() time.Duration {
	longest := int64(0)
	for policy := range b.now {
		longest = max(longest, loan.TermsOf(b.w.o.policy(policy).Limits[0].WindowUS()).Keep())
	}
	return time.Duration(longest+longest*quota.RatePPM/1_000_000) * time.Microsecond
}

// settle has the next bounds hold alone.
func (b *bounds) settle() { b.now, b.next = b.next, nil }
