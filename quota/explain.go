package quota

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Explanation gives the terms behind a decision.
type Explanation struct {
	Region     string `json:"region"`
	ConfigHash string `json:"config_hash"`
	StoreUS    int64  `json:"store_time_us,omitempty"`
	// Unlisted is whether the tenant has no entry of its own. Shared is whether an unlisted one shares its
	// partitions with others, or a value of a listed one's dimensions with other values: there was no place.
	Unlisted bool               `json:"unlisted,omitempty"`
	Shared   bool               `json:"shared,omitempty"`
	Limits   []LimitExplanation `json:"limits"`
	// Override is that of the tenant, if one is in force.
	Override *OverrideTerms `json:"override,omitempty"`
	// Sentences are those of the decision.
	Sentences []string `json:"sentences,omitempty"`
}

// OverrideTerms say what an override changes, and whose it is.
type OverrideTerms struct {
	Version   string `json:"version"`
	Changes   string `json:"changes"` // in words
	By        string `json:"by,omitempty"`
	Reason    string `json:"reason,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"` // RFC 3339
}

// LimitExplanation says how one ceiling came to be.
type LimitExplanation struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Partition string `json:"partition"`
	Ceiling   int64  `json:"ceiling"`
	// Ends is when the period of a limit with a calendar ends, RFC 3339; "" where the store was not asked.
	Ends string `json:"ends,omitempty"`
	CeilingTerms
}

// CeilingTerms is what a ceiling was computed from.
type CeilingTerms struct {
	Formula string `json:"formula"` // with its numbers
	Part    int64  `json:"part"`    // this region's share of the limit
	// Lost is what this region admitted and its store no longer holds.
	Lost  int64      `json:"lost,omitempty"`
	Peers []PeerTerm `json:"peers,omitempty"`
	// Bound is there for a limit with max_overshoot.
	Bound *BoundTerms `json:"bound,omitempty"`
}

// BoundTerms is how many units a region may hold under a limit's bound, and whether that or
// the estimate of what others used decides.
type BoundTerms struct {
	Units    int64 `json:"units"`              // B: what all regions may hold together in any window
	Share    int64 `json:"share"`              // this region's part of it
	Lent     int64 `json:"lent"`               // of the share
	Borrowed int64 `json:"borrowed"`           // of other regions
	Recalled int64 `json:"recalled"`           // left unused, to be returned
	Estimate int64 `json:"estimate,omitempty"` // the ceiling by the estimate; none with max_overshoot: 0%
	// KeepMS is how long what was lent and used may count: in any window the largest bound holds that some region had in it or so
	// long before. Overridden is whether the tenant has, or had, an override, so that bounds may differ.
	KeepMS     int64 `json:"keep_ms"`
	Overridden bool  `json:"overridden,omitempty"`
	// BurntMS is how long the share counts as used yet, since the region's store has lost data.
	BurntMS int64 `json:"burnt_ms,omitempty"`
	// Drifting says that nothing is admitted while the clock of the region's store runs too fast or too slow.
	Drifting bool `json:"drifting,omitempty"`
	// Differ are the regions with another configuration, in which B may be another, and Unseen those whose configuration is
	// not known now. PendingMS is how long after all have had the same what was admitted under another may count.
	Differ    []string `json:"differ,omitempty"`
	Unseen    []string `json:"unseen,omitempty"`
	PendingMS int64    `json:"pending_ms,omitempty"`
	// Binds is what decides: "closed" (nothing is admitted: by Drifting, or until it is known whether the store has lost data),
	// "burnt" (what is borrowed), "share" (with what is lent and borrowed) or "estimate".
	Binds string `json:"binds"`
}

// Close completes the terms for a bound at the store's TIME.
func (t *BoundTerms) Close(b Bound, nowUS int64) {
	why, left := b.Closed(nowUS)
	t.Drifting, t.BurntMS, t.Binds = b.Drifting, 0, "share"
	switch {
	case why == ReasonBoundClosed:
		t.Binds = "closed"
	case why == ReasonBoundBurnt:
		t.BurntMS, t.Binds = (left + time.Millisecond - 1).Milliseconds(), "burnt"
	case t.Estimate > 0 && t.Estimate < t.Share-t.Lent+t.Borrowed-t.Recalled:
		t.Binds = "estimate"
	}
}

// PeerTerm is another region's part in a ceiling.
type PeerTerm struct {
	Region   string `json:"region"`
	Weight   int64  `json:"weight"`
	Part     int64  `json:"part"`
	Estimate int64  `json:"estimate"`       // units it is believed to have used
	Held     int64  `json:"held,omitempty"` // and those that its open reservations hold
	// Counted is whether it is one of the regions whose parts are pooled.
	Counted bool   `json:"counted"`
	State   string `json:"state"`
	// Reason is why it is treated as unreachable, "" when it is.
	Reason string `json:"reason,omitempty"`
	// AgeMS is how long ago its last message arrived; −1: never.
	AgeMS int64 `json:"age_ms"`
	// OffsetMS is how far its store's clock is ahead of ours, for display.
	OffsetMS float64 `json:"offset_ms"`
}

// Sentences say in plain English what is decided and why, one fact each. The decision has an
// explanation; nil for one that has none.
func (d *Decision) Sentences() []string {
	if d.Explanation == nil {
		return nil
	}
	a := account{d: d, region: "region " + d.Explanation.Region}
	a.verdict()
	if d.Basis == BasisShed {
		return a.lines
	}
	a.view()
	if d.Reason == ReasonSuspended {
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
	d      *Decision
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
	case d.Basis == BasisShed:
		a.say("Redis of %s is busier than a check can wait for, so nothing is known now; ask again after a second.", a.region)
		return
	case d.WouldDeny:
		a.say("%s lets %s, and only because denials are observed, not enforced.", a.region, request)
	case d.Allowed:
		a.say("%s lets %s.", a.region, request)
	case d.Reason == ReasonSuspended:
		a.say("%s does not let %s, and will not until its override ends.", a.region, request)
	case d.TurnedAway() || slices.ContainsFunc(d.Limits, a.tooSmall):
		a.say("%s does not let %s.", a.region, request)
	case d.Reason == ReasonBoundClosed || d.Reason == ReasonBoundBurnt || a.lacksLoans(): // when it fits may not be known
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
func (a *account) override(o *OverrideTerms) {
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
	if d.Reason == ReasonBoundClosed || d.Reason == ReasonBoundBurnt { // of a limit
		reason = ""
	}
	switch {
	case d.Basis == BasisLocal:
		a.say("Its Redis does not decide now%s: this process does, in its memory and within its part of each limit.", reason)
	case d.Mode == ModeLocal && d.Basis == BasisOpen:
		a.say("Its Redis does not decide now%s, and the policy then admits everything.", reason)
	case d.Mode == ModeLocal:
		a.say("Its Redis does not decide now%s, and the policy then admits nothing.", reason)
	case d.Basis == BasisOpen:
		a.say("Its Redis is too busy to decide%s, and the policy then admits everything.", reason)
	case d.Basis == BasisClosed:
		a.say("It cannot count on all other regions%s, and the policy then admits nothing.", reason)
	case d.Mode == ModeJoining:
		a.say("It has not learned yet all that other regions used%s, and keeps to its share of global limits.", reason)
	case d.Mode == ModePartitioned:
		a.say("It cannot count on all other regions%s, and keeps to the shares of those that it can count on.", reason)
	case d.Mode == ModeStale:
		a.say("It cannot count on all other regions%s, and the policy then takes the silent ones for idle.", reason)
	}
}

// limit is one limit: what it is, what is used of it here and elsewhere, and when it frees.
func (a *account) limit(s *LimitState, e *LimitExplanation) {
	l := s.Limit
	by, where, burst := "", "in this region alone", ""
	if len(l.By) > 0 {
		by = ", for each " + strings.Join(l.By, " and ")
	}
	if l.Scope == ScopeGlobal {
		where = "over all regions"
	}
	if l.Algorithm == GCRA {
		burst = fmt.Sprintf(", at most %d at once", l.Capacity())
	}
	switch {
	case l.Algorithm == Concurrent:
		a.say("Limit %s is %s at once, counted %s%s.", l.Name, reservations(l.Units), where, by)
	case l.Counts == CountsTokens:
		a.say("Limit %s is %d tokens per %s%s, counted %s%s.", l.Name, l.Units, l.Per(), burst, where, by)
	default:
		a.say("Limit %s is %s per %s%s, counted %s%s.", l.Name, units(l.Units), l.Per(), burst, where, by)
	}
	decides := a.d.Basis != BasisOpen && a.d.Basis != BasisClosed
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
func (a *account) tooSmall(s LimitState) bool {
	return s.Denied && s.Reason == ReasonNone && a.d.CostOf(s.Limit) > s.Ceiling && s.RetryAfter == s.Limit.Window
}

// lends reports whether a limit denies what only other regions can free by then: its RetryAfter is when they may have.
func lends(s *LimitState, e *LimitExplanation) bool {
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
func (a *account) use(s *LimitState, e *LimitExplanation) {
	if s.Limit.Algorithm == Concurrent {
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
	case s.Reason != ReasonNone: // what is used matters less than that
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

func (a *account) peer(p *PeerTerm) {
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
func (a *account) bound(s *LimitState, e *LimitExplanation, decides bool) {
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
	return WindowText((d + to - 1).Truncate(to))
}

// WindowText is a window as in topology.yaml: 1m, not 1m0s.
func WindowText(w time.Duration) string {
	text := w.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
