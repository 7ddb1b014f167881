// Package sentences says in plain English what was decided and why. All it knows is in the decision and its explanation.
package sentences

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// Of returns the sentences of a decision, one fact each; nil for one without an explanation.
func Of(d *quota.Decision) []string {
	if d.Explanation == nil {
		return nil
	}
	a := account{d: d, region: "region " + d.Explanation.Region}
	a.verdict()
	if d.Basis == quota.BasisShed {
		return a.lines
	}
	a.view()
	if d.Reason == quota.ReasonSuspended {
		a.say("It admits nothing of %s.", strings.Join(d.Violated(), " and "))
		return a.lines
	}
	for i := range d.Limits {
		a.limit(&d.Limits[i], &d.Explanation.Limits[i])
	}
	return a.lines
}

// account is what is said so far.
type account struct {
	d      *quota.Decision
	region string
	lines  []string
}

func (a *account) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	a.lines = append(a.lines, strings.ToUpper(line[:1])+line[1:])
}

// verdict is the answer, and what it rests on.
func (a *account) verdict() {
	d := a.d
	verb := "spend"
	if d.Reserves {
		verb = "hold"
	}
	request := fmt.Sprintf("tenant %s %s %s under policy %s now", d.Tenant, verb, units(d.Cost), d.Policy)
	switch {
	case d.Basis == quota.BasisShed:
		a.say("Redis of %s is busier than a check can wait for, so nothing is known now; ask again after a second.", a.region)
		return
	case d.WouldDeny:
		a.say("%s lets %s, and only because denials are observed, not enforced.", a.region, request)
	case d.Allowed:
		a.say("%s lets %s.", a.region, request)
	case d.Reason == quota.ReasonSuspended:
		a.say("%s does not let %s, and will not until its override ends.", a.region, request)
	case d.TurnedAway() || slices.ContainsFunc(d.Limits, a.tooSmall):
		a.say("%s does not let %s.", a.region, request)
	case d.Reason == quota.ReasonBoundClosed, d.Reason == quota.ReasonBoundBurnt, a.lacksLoans(): // when it fits may not be known
		a.say("%s does not let %s: ask again in %s.", a.region, request, wait(d.RetryAfter()))
	default:
		a.say("%s does not let %s: it fits in %s.", a.region, request, wait(d.RetryAfter()))
	}
	e := d.Explanation
	if e.Unlisted {
		a.say("The tenant is not listed in topology.yaml, so it is held to what is set for the others.")
	}
	switch {
	case e.Shared && e.Unlisted:
		a.say("There are more unlisted tenants than have places of their own, and this one shares what is left.")
	case e.Shared:
		a.say("The tenant has more values of a dimension than have places of their own (max_values), and this one shares what is left.")
	}
	a.override(e.Override)
	if len(d.Limits) == 0 {
		a.say("No limit of the policy applies to such a request.")
	}
}

// override is who has changed what of the tenant's limits.
func (a *account) override(o *quota.OverrideTerms) {
	if o == nil {
		return
	}
	by, until, why := "", "", ""
	if o.By != "" {
		by = " by " + o.By
	}
	if o.ExpiresAt != "" {
		until = ", until " + o.ExpiresAt
	}
	if o.Reason != "" {
		why = fmt.Sprintf(" (%q)", o.Reason)
	}
	a.say("The tenant has an override%s%s%s: %s.", by, until, why, o.Changes)
}

// view is what the region sees of its Redis and of the others.
func (a *account) view() {
	d := a.d
	reason := " (" + strings.ReplaceAll(d.Reason.String(), "_", " ") + ")"
	if d.Reason == quota.ReasonBoundClosed || d.Reason == quota.ReasonBoundBurnt { // of a limit
		reason = ""
	}
	switch {
	case d.Basis == quota.BasisLocal:
		a.say("Its Redis does not decide now%s: this process does, in its memory and within its part of each limit.", reason)
	case d.Mode == quota.ModeLocal && d.Basis == quota.BasisOpen:
		a.say("Its Redis does not decide now%s, and the policy then admits everything.", reason)
	case d.Mode == quota.ModeLocal:
		a.say("Its Redis does not decide now%s, and the policy then admits nothing.", reason)
	case d.Basis == quota.BasisOpen:
		a.say("Its Redis is too busy to decide%s, and the policy then admits everything.", reason)
	case d.Basis == quota.BasisClosed:
		a.say("It cannot count on all other regions%s, and the policy then admits nothing.", reason)
	case d.Mode == quota.ModeJoining:
		a.say("It has not learned yet all that other regions used%s, and keeps to its share of global limits.", reason)
	case d.Mode == quota.ModePartitioned:
		a.say("It cannot count on all other regions%s, and keeps to the shares of those that it can count on.", reason)
	case d.Mode == quota.ModeStale:
		a.say("It cannot count on all other regions%s, and the policy then takes the silent ones for idle.", reason)
	}
}

// limit is one limit: what it is, what is used of it here and elsewhere, and when it frees.
func (a *account) limit(s *quota.LimitState, e *quota.LimitExplanation) {
	l := s.Limit
	by, where, burst := "", "in this region alone", ""
	if len(l.By) > 0 {
		by = ", for each " + strings.Join(l.By, " and ")
	}
	if l.Scope == quota.ScopeGlobal {
		where = "over all regions"
	}
	if l.Algorithm == quota.GCRA {
		burst = fmt.Sprintf(", at most %d at once", l.Capacity())
	}
	switch {
	case l.Algorithm == quota.Concurrent:
		a.say("Limit %s is %s at once, counted %s%s.", l.Name, reservations(l.Units), where, by)
	case l.Counts == quota.CountsTokens:
		a.say("Limit %s is %d tokens per %s%s, counted %s%s.", l.Name, l.Units, l.Per(), burst, where, by)
	default:
		a.say("Limit %s is %s per %s%s, counted %s%s.", l.Name, units(l.Units), l.Per(), burst, where, by)
	}
	decides := a.d.Basis != quota.BasisOpen && a.d.Basis != quota.BasisClosed
	if decides && (e.Bound == nil || e.Bound.Binds != "closed") {
		a.use(s, e)
	}
	if e.Ends != "" {
		a.say("Its next %s begins at %s, with nothing used.", l.Calendar.Unit, e.Ends)
	}
	if e.Lost > 0 {
		a.say("What it admitted and its Redis does not have counts as used: %s.", units(e.Lost))
	}
	for i := range e.Peers {
		a.peer(&e.Peers[i])
	}
	if decides && e.Bound == nil && len(e.Peers) > 0 {
		a.say("So it may hold %s: %s.", units(s.Ceiling), e.Formula)
	}
	if e.Bound != nil {
		a.bound(s, e, decides)
	}
}

// tooSmall reports whether a limit denies by a ceiling below the cost that is not known to grow: its
// RetryAfter is then the window, after which to ask again.
func (a *account) tooSmall(s quota.LimitState) bool {
	return s.Denied && s.Reason == quota.ReasonNone && a.d.CostOf(s.Limit) > s.Ceiling && s.RetryAfter == s.Limit.Window
}

// lends reports whether a limit denies what only other regions can free by then: its RetryAfter is when they may have.
func lends(s *quota.LimitState, e *quota.LimitExplanation) bool {
	return s.Denied && e.Bound != nil && s.RetryAfter <= time.Second && (s.Ceiling == 0 || s.Limit.Calendar != nil)
}

// lacksLoans reports whether one of the limits lends.
func (a *account) lacksLoans() bool {
	for i := range a.d.Limits {
		if lends(&a.d.Limits[i], &a.d.Explanation.Limits[i]) {
			return true
		}
	}
	return false
}

// use is what is used of a limit here, and when it frees.
func (a *account) use(s *quota.LimitState, e *quota.LimitExplanation) {
	if s.Limit.Algorithm == quota.Concurrent {
		a.say("Of the %s that %s may have open at once, %d are.", reservations(s.Ceiling), a.region, s.Held)
		if s.Denied {
			a.say("Another may begin in %s, or when one is settled.", wait(s.RetryAfter))
		}
		return
	}
	if s.Held > 0 {
		a.say("%s of it are held by open reservations, and free when those are settled.", units(s.Held))
	}
	switch used := s.Used() - s.Held; {
	case s.Ceiling == 0 && used == 0:
		a.say("%s may hold nothing of it now.", a.region)
	case s.Over > 0:
		a.say("%s used %s of it, and may hold %d of it now.", a.region, units(used), s.Ceiling)
	case s.Remaining == 0 && s.Held > 0:
		a.say("%s used %d of the %s that it may hold of it now; nothing is left.", a.region, used, units(s.Ceiling))
	case s.Remaining == 0:
		a.say("%s used all of the %s that it may hold of it now.", a.region, units(s.Ceiling))
	case used == 0:
		a.say("%s used nothing of the %s that it may hold of it now.", a.region, units(s.Ceiling))
	default:
		a.say("%s used %d of the %s that it may hold of it now; %d are left.", a.region, used, units(s.Ceiling), s.Remaining)
	}
	switch {
	case s.Reason != quota.ReasonNone: // what is used matters less than that
	case lends(s, e):
		a.say("Ask again in %s: other regions may lend it what it lacks.", wait(s.RetryAfter))
	case a.tooSmall(*s):
		a.say("The request costs more than that, and when it may hold enough is not known.")
	case s.Denied:
		a.say("The request fits this limit in %s, if nobody spends more.", wait(s.RetryAfter))
	case s.ResetAfter > 0 && s.Remaining < s.Ceiling && s.Limit.Calendar == nil:
		a.say("All that is used of it has freed in %s, if nobody spends more.", wait(s.ResetAfter))
	}
}

func (a *account) peer(p *quota.PeerTerm) {
	used := fmt.Sprintf("used %d", p.Estimate)
	if p.Held > 0 {
		used += fmt.Sprintf(" and holds %d for open reservations", p.Held)
	}
	why := strings.ReplaceAll(p.State, "_", " ")
	if p.Reason != "" {
		why += ": " + strings.ReplaceAll(p.Reason, "_", " ")
	}
	if p.AgeMS >= 0 {
		used += ", as of " + wait(time.Duration(p.AgeMS)*time.Millisecond) + " ago"
	}
	switch {
	case p.Counted:
		a.say("region %s %s.", p.Region, used)
	case p.AgeMS < 0 && p.Estimate+p.Held == 0 && p.State == "never_seen":
		a.say("region %s is treated as unreachable (%s): nothing was received from it since this process started.", p.Region, why)
	default:
		a.say("region %s is treated as unreachable (%s): it %s.", p.Region, why, used)
	}
}

// bound is a region's part in the bound of a limit. decides: the bound was asked.
func (a *account) bound(s *quota.LimitState, e *quota.LimitExplanation, decides bool) {
	b := e.Bound
	most, pending := units(b.Units), wait(time.Duration(b.PendingMS)*time.Millisecond)
	same, span := "", "window"
	if c := s.Limit.Calendar; c != nil {
		span = c.Unit.String()
	}
	if len(b.Unseen) > 0 {
		same = fmt.Sprintf("the configuration of %s is not known now. If it is the same, ", regions(b.Unseen))
	}
	switch {
	case len(b.Differ) > 0:
		a.say("Its bound of %s is not in force yet: %s with another configuration may admit more. It is in force when all regions have had the same for %s (max_overshoot).",
			most, regions(b.Differ), pending)
	case b.PendingMS > 0 || len(b.Unseen) > 0 || b.Overridden:
		a.say("%sall regions together hold at most %s of it in any %s (max_overshoot).", same, most, span)
	default:
		a.say("All regions together hold at most %s of it in any %s, whatever happens (max_overshoot).", most, span)
	}
	if len(b.Differ) == 0 && b.PendingMS > 0 {
		a.say("A region had another configuration. If its bound was larger, that one holds for another %s.", pending)
	}
	if b.Overridden {
		a.say("Where another override of the tenant, or none, was in force in a region in the last %s, the largest bound of them holds.",
			wait(time.Duration(b.KeepMS)*time.Millisecond))
	}
	line := fmt.Sprintf("its share is %d", b.Share)
	for _, part := range []struct {
		units int64
		what  string
	}{{b.Lent, "of it lent to others"}, {b.Borrowed, "borrowed from others"}, {b.Recalled, "kept free to be returned"}} {
		if part.units > 0 {
			line += fmt.Sprintf(", %d %s", part.units, part.what)
		}
	}
	a.say("%s.", line)
	switch {
	case !decides:
	case b.Drifting:
		a.say("Nothing of it is admitted while the clock of its Redis runs more than 2 %% too fast or too slow.")
	case b.Binds == "closed":
		a.say("Nothing of it is admitted until it is known whether its Redis has lost data.")
	case b.BurntMS > 0:
		admits := "nothing"
		if len(e.Peers) > 0 {
			admits = fmt.Sprintf("only what other regions lend it: %s now", units(s.Ceiling))
		}
		a.say("What it admitted before is not known (regiond regions says why), so its own share counts as used for another %s. Until then it admits %s.",
			wait(time.Duration(b.BurntMS)*time.Millisecond), admits)
	case b.Binds == "estimate":
		a.say("What others used leaves it less than that, %s, and decides.", units(b.Estimate))
	default:
		a.say("So it may hold %s.", units(s.Ceiling))
	}
}

// regions names some.
func regions(names []string) string {
	word := "region "
	if len(names) > 1 {
		word = "regions "
	}
	return word + strings.Join(names, " and ")
}

func units(n int64) string { return count(n, "unit") }

func reservations(n int64) string { return count(n, "reservation") }

func count(n int64, of string) string {
	if n != 1 {
		of += "s"
	}
	return fmt.Sprintf("%d %s", n, of)
}

// wait is a time for people, rounded up: to be early is no use.
func wait(d time.Duration) string {
	to := time.Millisecond
	switch {
	case d >= time.Minute:
		to = time.Second
	case d >= time.Second:
		to = 100 * time.Millisecond
	}
	return quota.WindowText((d + to - 1).Truncate(to))
}
