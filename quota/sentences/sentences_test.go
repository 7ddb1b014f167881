package sentences

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/golden"
)

// told is a decision of eu-west about a limit that others share, as the limiter explains it.
func told(change func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation)) *quota.Decision {
	minute := &quota.Limit{Name: "minute", Units: 600, Window: time.Minute, Scope: quota.ScopeGlobal}
	d := &quota.Decision{
		Allowed: true, Tenant: "acme", Policy: "standard", Cost: 1, Basis: quota.BasisEstimate,
		Limits: []quota.LimitState{{Limit: minute, Ceiling: 500, Remaining: 460, ResetAfter: 42_300 * time.Millisecond}},
		Explanation: &quota.Explanation{Region: "eu-west", Limits: []quota.LimitExplanation{{Name: "minute", CeilingTerms: quota.CeilingTerms{
			Formula: "max(0, shares eu-west 200 + us-east 200 + ap-south 200 − used us-east 70 − used ap-south 30 − lost 0) = 500", Part: 200,
			Peers: []quota.PeerTerm{
				{Region: "us-east", Part: 200, Estimate: 70, Counted: true, State: "fresh", AgeMS: 340},
				{Region: "ap-south", Part: 200, Estimate: 30, Counted: true, State: "fresh", AgeMS: 20},
			},
		}}}},
	}
	change(d, &d.Limits[0], &d.Explanation.Limits[0])
	return d
}

// alone makes the limit one of the region.
func alone(s *quota.LimitState, e *quota.LimitExplanation) {
	s.Limit = &quota.Limit{Name: "burst", Units: 20, Window: time.Second, By: []string{"user", "ip"}}
	s.Ceiling, s.Remaining, s.ResetAfter = 20, 20, 0
	e.Peers = nil
}

// monthly makes it a limit of the region with a calendar.
func monthly(s *quota.LimitState, e *quota.LimitExplanation) {
	c := &quota.Calendar{Unit: quota.CalendarMonth, Zone: time.FixedZone("Europe/Berlin", 3600), Anchor: 15}
	s.Limit = &quota.Limit{Name: "monthly", Units: 10_000, Algorithm: quota.CalendarPeriods, Calendar: c, Window: quota.MaxWindow}
	s.Ceiling, s.Remaining, s.ResetAfter = 10_000, 4000, 50*time.Hour
	e.Peers, e.Ends = nil, "2026-12-15T00:00:00+01:00"
}

func TestSentences(t *testing.T) {
	bound := func(b quota.BoundTerms) func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
		return func(_ *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			s.Ceiling, s.Remaining = 250, 210
			e.Bound = &b
		}
	}
	closed := func(why quota.Reason, retry time.Duration, b quota.BoundTerms) func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
		return func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			d.Allowed, d.Reason = false, why
			s.Denied, s.Reason, s.Ceiling, s.Remaining, s.ResetAfter, s.RetryAfter = true, why, 0, 0, 0, retry
			e.Bound = &b
		}
	}
	var got strings.Builder
	for _, row := range []struct {
		name   string
		change func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation)
	}{
		{"a limit of one region, unused", func(_ *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) { alone(s, e) }},
		{"a month, partly used", func(_ *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) { monthly(s, e) }},
		{"a month, used up", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			monthly(s, e)
			d.Allowed, s.Denied, s.Remaining, s.RetryAfter = false, true, 0, s.ResetAfter
		}},
		{"another region holds units", func(_ *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			s.Ceiling, s.Remaining = 440, 400
			e.Peers[0].Held, e.Formula = 60, "max(0, shares eu-west 200 + us-east 200 + ap-south 200 − used us-east 70 − held us-east 60 − used ap-south 30 − lost 0) = 440"
		}},
		{"used up", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			alone(s, e)
			d.Allowed, d.Cost = false, 3
			s.Denied, s.Remaining, s.RetryAfter, s.ResetAfter = true, 0, 399_001*time.Microsecond, time.Second
		}},
		{"others used what was free", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			d.Allowed = false
			s.Denied, s.Remaining, s.Over, s.RetryAfter = true, 0, 30, 2*time.Second
			s.Ceiling, e.Peers[0].Estimate = 400, 170
			e.Formula = "max(0, shares eu-west 200 + us-east 200 + ap-south 200 − used us-east 170 − used ap-south 30 − lost 0) = 400"
		}},
		{"its share is below the cost", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			d.Allowed, d.Cost, d.Mode, d.Reason = false, 300, quota.ModePartitioned, quota.ReasonPeerSilent
			s.Denied, s.Ceiling, s.Remaining, s.RetryAfter, e.Peers = true, 200, 160, time.Minute, nil
		}},
		{"others leave less than the cost, and it fades", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			d.Allowed, d.Cost = false, 550
			s.Denied, s.RetryAfter, e.Peers = true, time.Minute-time.Millisecond, nil
		}},
		{"tokens, some of them held", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			alone(s, e)
			d.Allowed, d.Reserves, d.Cost = false, true, 700
			s.Limit = &quota.Limit{Name: "tokens", Units: 1000, Window: time.Minute, Counts: quota.CountsTokens}
			s.Denied, s.Ceiling, s.Remaining, s.Held, s.RetryAfter, s.ResetAfter = true, 1000, 350, 400, 29*time.Second, time.Minute
		}},
		{"all of the places are taken", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			alone(s, e)
			d.Allowed, d.Reserves, d.Cost = false, true, 700
			s.Limit = &quota.Limit{Name: "inflight", Units: 3, Window: time.Minute, Algorithm: quota.Concurrent}
			s.Denied, s.Ceiling, s.Remaining, s.Held, s.RetryAfter, s.ResetAfter = true, 3, 0, 3, 29*time.Second, time.Minute
		}},
		{"a rate with a burst", func(_ *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			alone(s, e)
			s.Limit = &quota.Limit{Name: "rate", Units: 10, Window: time.Minute, Algorithm: quota.GCRA, Burst: 3}
			s.Ceiling, s.Remaining, s.ResetAfter = 3, 2, 6*time.Second
		}},
		{"observed", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			alone(s, e)
			d.WouldDeny, s.Denied, s.Remaining, s.RetryAfter = true, true, 0, time.Millisecond
		}},
		{"no limit", func(d *quota.Decision, _ *quota.LimitState, _ *quota.LimitExplanation) {
			d.Limits, d.Explanation.Limits = nil, nil
		}},
		{"unlisted", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			alone(s, e)
			d.Explanation.Unlisted, d.Explanation.Shared = true, true
		}},
		{"a value without a place", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			alone(s, e)
			d.Explanation.Shared = true
		}},
		{"global", func(*quota.Decision, *quota.LimitState, *quota.LimitExplanation) {}},
		{"a region is treated as unreachable", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			d.Mode, d.Reason = quota.ModePartitioned, quota.ReasonPeerSilent
			s.Ceiling, s.Remaining, e.Lost = 300, 0, 12
			e.Formula = "max(0, shares eu-west 200 + us-east 200 − used us-east 70 − above its share ap-south max(0, 30 − 200) − lost 12) = 318"
			e.Peers[1].Counted, e.Peers[1].State, e.Peers[1].Reason, e.Peers[1].AgeMS = false, "silent", "peer_silent", 12_300
		}},
		{"a region was never met", func(d *quota.Decision, _ *quota.LimitState, e *quota.LimitExplanation) {
			d.Mode, d.Reason = quota.ModeJoining, quota.ReasonJoining
			e.Peers[0].Counted, e.Peers[0].State, e.Peers[0].AgeMS, e.Peers[0].Estimate = false, "never_seen", -1, 0
		}},
		{"a region was not met since the start, and another reports what it used", func(d *quota.Decision, _ *quota.LimitState, e *quota.LimitExplanation) {
			d.Mode, d.Reason = quota.ModeJoining, quota.ReasonJoining
			e.Peers[0].Counted, e.Peers[0].State, e.Peers[0].AgeMS = false, "never_seen", -1
		}},
		{"silent ones are taken for idle", func(d *quota.Decision, _ *quota.LimitState, _ *quota.LimitExplanation) {
			d.Mode, d.Reason = quota.ModeStale, quota.ReasonOneWay
		}},
		{"closed while partitioned", func(d *quota.Decision, s *quota.LimitState, _ *quota.LimitExplanation) {
			d.Allowed, d.Basis, d.Mode, d.Reason, s.Ceiling = false, quota.BasisClosed, quota.ModeStale, quota.ReasonPeerSilent, 0
		}},
		{"redis is away", func(d *quota.Decision, s *quota.LimitState, _ *quota.LimitExplanation) {
			d.Basis, d.Mode, d.Reason, s.Ceiling, s.Remaining = quota.BasisLocal, quota.ModeLocal, quota.ReasonBreakerOpen, 100, 99
		}},
		{"redis is away and the policy opens", func(d *quota.Decision, _ *quota.LimitState, _ *quota.LimitExplanation) {
			d.Basis, d.Mode, d.Reason = quota.BasisOpen, quota.ModeLocal, quota.ReasonRedisDown
		}},
		{"redis is away and the policy closes", func(d *quota.Decision, _ *quota.LimitState, _ *quota.LimitExplanation) {
			d.Allowed, d.Basis, d.Mode, d.Reason = false, quota.BasisClosed, quota.ModeLocal, quota.ReasonRedisTimeout
		}},
		{"redis is busy", func(d *quota.Decision, _ *quota.LimitState, _ *quota.LimitExplanation) {
			d.Allowed, d.Basis, d.Reason, d.Limits = false, quota.BasisShed, quota.ReasonOverloaded, nil
		}},
		{"redis is busy and the policy opens", func(d *quota.Decision, _ *quota.LimitState, _ *quota.LimitExplanation) {
			d.Basis, d.Reason = quota.BasisOpen, quota.ReasonOverloaded
		}},
		{"bound by its share", bound(quota.BoundTerms{Units: 660, Share: 220, Lent: 20, Borrowed: 60, Recalled: 10, Estimate: 500, Binds: "share"})},
		{"all of the share is lent", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			d.Allowed, s.Denied, s.RetryAfter, s.Ceiling, s.Remaining = false, true, time.Second, 0, 0
			e.Bound = &quota.BoundTerms{Units: 660, Share: 220, Lent: 220, Binds: "share"}
		}},
		{"bound by the estimate", bound(quota.BoundTerms{Units: 660, Share: 270, Estimate: 250, Binds: "estimate"})},
		{"closed while the clock is wrong", closed(quota.ReasonBoundClosed, time.Second, quota.BoundTerms{Units: 600, Share: 200, Drifting: true, Binds: "closed"})},
		{"closed until redis was read", closed(quota.ReasonBoundClosed, time.Second, quota.BoundTerms{Units: 600, Share: 200, Binds: "closed"})},
		{"burnt after a loss", closed(quota.ReasonBoundBurnt, time.Second, quota.BoundTerms{Units: 600, Share: 200, BurntMS: 58_001, Binds: "burnt"})},
		{"burnt, and others lend", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			d.Reason, s.Reason, s.Ceiling, s.Remaining = quota.ReasonBoundBurnt, quota.ReasonBoundBurnt, 60, 20
			e.Bound = &quota.BoundTerms{Units: 600, Share: 200, Borrowed: 60, BurntMS: 58_001, Binds: "burnt"}
		}},
		{"burnt until the period ends, and others lend", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			peers := e.Peers
			monthly(s, e)
			d.Reason, s.Reason, s.Ceiling, s.Remaining = quota.ReasonBoundBurnt, quota.ReasonBoundBurnt, 60, 20
			e.Peers, e.Bound = peers, &quota.BoundTerms{Units: 10_000, Share: 200, Borrowed: 60, BurntMS: 58_001, Binds: "burnt"}
		}},
		{"burnt while partitioned", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			closed(quota.ReasonBoundBurnt, 58_001*time.Millisecond, quota.BoundTerms{Units: 600, Share: 200, BurntMS: 58_001, Binds: "burnt"})(d, s, e)
			d.Mode = quota.ModePartitioned
		}},
		{"burnt, and there is no other region", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			closed(quota.ReasonBoundBurnt, 58_001*time.Millisecond, quota.BoundTerms{Units: 600, Share: 600, BurntMS: 58_001, Binds: "burnt"})(d, s, e)
			e.Peers = nil
		}},
		{"bound under an override", bound(quota.BoundTerms{Units: 660, Share: 250, Binds: "share", Overridden: true, KeepMS: 93_966})},
		{"bound under an override, and another region has another file", bound(quota.BoundTerms{
			Units: 660, Share: 250, Binds: "share", Differ: []string{"us-east"}, PendingMS: 90_300, Overridden: true, KeepMS: 93_966,
		})},
		{"another region has another file", bound(quota.BoundTerms{Units: 660, Share: 250, Binds: "share", Differ: []string{"us-east"}, PendingMS: 90_300})},
		{"another region had another file", bound(quota.BoundTerms{Units: 660, Share: 250, Binds: "share", PendingMS: 41_300})},
		{"the file of another region is not known", bound(quota.BoundTerms{Units: 660, Share: 250, Binds: "share", Unseen: []string{"us-east", "ap-south"}})},
		{"another region had another file, and that of a third is not known", bound(quota.BoundTerms{Units: 660, Share: 250, Binds: "share", Unseen: []string{"ap-south"}, PendingMS: 5_700})},
		{"bound and closed by the policy", func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			d.Allowed, d.Basis, d.Mode, d.Reason, s.Ceiling = false, quota.BasisClosed, quota.ModeStale, quota.ReasonPeerSilent, 0
			e.Bound = &quota.BoundTerms{Units: 600, Share: 1000, Binds: "share"}
		}},
		{"a dead region is treated as unreachable", func(d *quota.Decision, _ *quota.LimitState, e *quota.LimitExplanation) {
			d.Mode, d.Reason = quota.ModePartitioned, quota.ReasonPeerSilent
			e.Peers[0].Counted, e.Peers[0].State, e.Peers[0].AgeMS = false, "dead", -1
		}},
		{"nothing may be held", func(_ *quota.Decision, s *quota.LimitState, _ *quota.LimitExplanation) { s.Ceiling, s.Remaining = 0, 0 }},
	} {
		fmt.Fprintf(&got, "# %s\n%s\n\n", row.name, strings.Join(Of(told(row.change)), "\n"))
	}
	golden.Compare(t, "sentences.golden", got.String())
	if s := Of(&quota.Decision{}); s != nil {
		t.Errorf("without an explanation it says %q", s)
	}
}

// TestSentencesAgree: whatever the terms of a bound are, no two sentences contradict each other, and none claims a bound that is
// not certain.
func TestSentencesAgree(t *testing.T) {
	never := [][2]string{
		{"whatever happens", "in force"},
		{"whatever happens", "another configuration"},
		{"All regions together hold", "not in force"},
		{"whatever happens", "is not known now"},
		{"Nothing of it is admitted", "that it may hold"},
		{"Nothing of it is admitted", "So it may hold"},
	}
	us := []string{"us-east"}
	files := []quota.BoundTerms{{}, {PendingMS: 5700}, {Unseen: us}, {Unseen: us, PendingMS: 5700}, {Differ: us, PendingMS: 5700}, {Differ: us, Unseen: us, PendingMS: 5700}}
	binds := []quota.BoundTerms{{Binds: "closed"}, {Binds: "closed", Drifting: true}, {Binds: "burnt", BurntMS: 5700}, {Binds: "share"}, {Binds: "estimate", Estimate: 100}}
	for n := range len(files) * len(binds) * int(quota.BasisShed) {
		b, f, basis := binds[n%len(binds)], files[n/len(binds)%len(files)], quota.Basis(n/len(binds)/len(files))
		b.Units, b.Share, b.Differ, b.Unseen, b.PendingMS = 3000, 1000, f.Differ, f.Unseen, f.PendingMS
		text := strings.Join(Of(told(func(d *quota.Decision, s *quota.LimitState, e *quota.LimitExplanation) {
			d.Basis, s.Ceiling, e.Bound = basis, 1000, &b
		})), "\n")
		for _, pair := range never {
			if strings.Contains(text, pair[0]) && strings.Contains(text, pair[1]) {
				t.Errorf("%+v by %v: %q beside %q:\n%s", b, basis, pair[0], pair[1], text)
			}
		}
	}
}

// TestWait: a time for people is never too short, and at most a second, a tenth of one or a
// millisecond too long.
func TestWait(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1: "1ms", time.Microsecond: "1ms", 999 * time.Millisecond: "999ms", 1001 * time.Millisecond: "1.1s",
		59_990 * time.Millisecond: "1m", 61_001 * time.Millisecond: "1m2s", time.Hour - 1: "1h", 25*time.Hour + time.Second: "25h0m1s",
	} {
		if got := wait(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
