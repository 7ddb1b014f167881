package quota

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden file anew")

// told is a decision of eu-west about a limit that others share, as the limiter explains it.
func told(change func(d *Decision, s *LimitState, e *LimitExplanation)) *Decision {
	minute := &Limit{Name: "minute", Units: 600, Window: time.Minute, Scope: ScopeGlobal}
	d := &Decision{
		Allowed: true, Tenant: "acme", Policy: "standard", Cost: 1, Basis: BasisEstimate,
		Limits: []LimitState{{Limit: minute, Ceiling: 500, Remaining: 460, ResetAfter: 42_300 * time.Millisecond}},
		Explanation: &Explanation{Region: "eu-west", Limits: []LimitExplanation{{Name: "minute", CeilingTerms: CeilingTerms{
			Formula: "max(0, shares eu-west 200 + us-east 200 + ap-south 200 − used us-east 70 − used ap-south 30 − lost 0) = 500", Part: 200,
			Peers: []PeerTerm{
				{Region: "us-east", Part: 200, Estimate: 70, Counted: true, State: "fresh", AgeMS: 340},
				{Region: "ap-south", Part: 200, Estimate: 30, Counted: true, State: "fresh", AgeMS: 20},
			},
		}}}},
	}
	change(d, &d.Limits[0], &d.Explanation.Limits[0])
	return d
}

// alone makes the limit one of the region.
func alone(s *LimitState, e *LimitExplanation) {
	s.Limit = &Limit{Name: "burst", Units: 20, Window: time.Second, By: []string{"user", "ip"}}
	s.Ceiling, s.Remaining, s.ResetAfter = 20, 20, 0
	e.Peers = nil
}

// monthly makes it a limit of the region with a calendar.
func monthly(s *LimitState, e *LimitExplanation) {
	c := &Calendar{Unit: CalendarMonth, Zone: time.FixedZone("Europe/Berlin", 3600), Anchor: 15}
	s.Limit = &Limit{Name: "monthly", Units: 10_000, Algorithm: CalendarPeriods, Calendar: c, Window: MaxWindow}
	s.Ceiling, s.Remaining, s.ResetAfter = 10_000, 4000, 50*time.Hour
	e.Peers, e.Ends = nil, "2026-12-15T00:00:00+01:00"
}

func TestSentences(t *testing.T) {
	bound := func(b BoundTerms) func(d *Decision, s *LimitState, e *LimitExplanation) {
		return func(_ *Decision, s *LimitState, e *LimitExplanation) {
			s.Ceiling, s.Remaining = 250, 210
			e.Bound = &b
		}
	}
	closed := func(why Reason, retry time.Duration, b BoundTerms) func(d *Decision, s *LimitState, e *LimitExplanation) {
		return func(d *Decision, s *LimitState, e *LimitExplanation) {
			d.Allowed, d.Reason = false, why
			s.Denied, s.Reason, s.Ceiling, s.Remaining, s.ResetAfter, s.RetryAfter = true, why, 0, 0, 0, retry
			e.Bound = &b
		}
	}
	var got strings.Builder
	for _, row := range []struct {
		name   string
		change func(d *Decision, s *LimitState, e *LimitExplanation)
	}{
		{"a limit of one region, unused", func(_ *Decision, s *LimitState, e *LimitExplanation) { alone(s, e) }},
		{"a month, partly used", func(_ *Decision, s *LimitState, e *LimitExplanation) { monthly(s, e) }},
		{"a month, used up", func(d *Decision, s *LimitState, e *LimitExplanation) {
			monthly(s, e)
			d.Allowed, s.Denied, s.Remaining, s.RetryAfter = false, true, 0, s.ResetAfter
		}},
		{"another region holds units", func(_ *Decision, s *LimitState, e *LimitExplanation) {
			s.Ceiling, s.Remaining = 440, 400
			e.Peers[0].Held, e.Formula = 60, "max(0, shares eu-west 200 + us-east 200 + ap-south 200 − used us-east 70 − held us-east 60 − used ap-south 30 − lost 0) = 440"
		}},
		{"used up", func(d *Decision, s *LimitState, e *LimitExplanation) {
			alone(s, e)
			d.Allowed, d.Cost = false, 3
			s.Denied, s.Remaining, s.RetryAfter, s.ResetAfter = true, 0, 399_001*time.Microsecond, time.Second
		}},
		{"others used what was free", func(d *Decision, s *LimitState, e *LimitExplanation) {
			d.Allowed = false
			s.Denied, s.Remaining, s.Over, s.RetryAfter = true, 0, 30, 2*time.Second
			s.Ceiling, e.Peers[0].Estimate = 400, 170
			e.Formula = "max(0, shares eu-west 200 + us-east 200 + ap-south 200 − used us-east 170 − used ap-south 30 − lost 0) = 400"
		}},
		{"its share is below the cost", func(d *Decision, s *LimitState, e *LimitExplanation) {
			d.Allowed, d.Cost, d.Mode, d.Reason = false, 300, ModePartitioned, ReasonPeerSilent
			s.Denied, s.Ceiling, s.Remaining, s.RetryAfter, e.Peers = true, 200, 160, time.Minute, nil
		}},
		{"others leave less than the cost, and it fades", func(d *Decision, s *LimitState, e *LimitExplanation) {
			d.Allowed, d.Cost = false, 550
			s.Denied, s.RetryAfter, e.Peers = true, time.Minute-time.Millisecond, nil
		}},
		{"tokens, some of them held", func(d *Decision, s *LimitState, e *LimitExplanation) {
			alone(s, e)
			d.Allowed, d.Reserves, d.Cost = false, true, 700
			s.Limit = &Limit{Name: "tokens", Units: 1000, Window: time.Minute, Counts: CountsTokens}
			s.Denied, s.Ceiling, s.Remaining, s.Held, s.RetryAfter, s.ResetAfter = true, 1000, 350, 400, 29*time.Second, time.Minute
		}},
		{"all of the places are taken", func(d *Decision, s *LimitState, e *LimitExplanation) {
			alone(s, e)
			d.Allowed, d.Reserves, d.Cost = false, true, 700
			s.Limit = &Limit{Name: "inflight", Units: 3, Window: time.Minute, Algorithm: Concurrent}
			s.Denied, s.Ceiling, s.Remaining, s.Held, s.RetryAfter, s.ResetAfter = true, 3, 0, 3, 29*time.Second, time.Minute
		}},
		{"a rate with a burst", func(_ *Decision, s *LimitState, e *LimitExplanation) {
			alone(s, e)
			s.Limit = &Limit{Name: "rate", Units: 10, Window: time.Minute, Algorithm: GCRA, Burst: 3}
			s.Ceiling, s.Remaining, s.ResetAfter = 3, 2, 6*time.Second
		}},
		{"observed", func(d *Decision, s *LimitState, e *LimitExplanation) {
			alone(s, e)
			d.WouldDeny, s.Denied, s.Remaining, s.RetryAfter = true, true, 0, time.Millisecond
		}},
		{"no limit", func(d *Decision, _ *LimitState, _ *LimitExplanation) { d.Limits, d.Explanation.Limits = nil, nil }},
		{"unlisted", func(d *Decision, s *LimitState, e *LimitExplanation) {
			alone(s, e)
			d.Explanation.Unlisted, d.Explanation.Shared = true, true
		}},
		{"a value without a place", func(d *Decision, s *LimitState, e *LimitExplanation) {
			alone(s, e)
			d.Explanation.Shared = true
		}},
		{"global", func(*Decision, *LimitState, *LimitExplanation) {}},
		{"a region is treated as unreachable", func(d *Decision, s *LimitState, e *LimitExplanation) {
			d.Mode, d.Reason = ModePartitioned, ReasonPeerSilent
			s.Ceiling, s.Remaining, e.Lost = 300, 0, 12
			e.Formula = "max(0, shares eu-west 200 + us-east 200 − used us-east 70 − above its share ap-south max(0, 30 − 200) − lost 12) = 318"
			e.Peers[1].Counted, e.Peers[1].State, e.Peers[1].Reason, e.Peers[1].AgeMS = false, "silent", "peer_silent", 12_300
		}},
		{"a region was never met", func(d *Decision, _ *LimitState, e *LimitExplanation) {
			d.Mode, d.Reason = ModeJoining, ReasonJoining
			e.Peers[0].Counted, e.Peers[0].State, e.Peers[0].AgeMS, e.Peers[0].Estimate = false, "never_seen", -1, 0
		}},
		{"a region was not met since the start, and another reports what it used", func(d *Decision, _ *LimitState, e *LimitExplanation) {
			d.Mode, d.Reason = ModeJoining, ReasonJoining
			e.Peers[0].Counted, e.Peers[0].State, e.Peers[0].AgeMS = false, "never_seen", -1
		}},
		{"silent ones are taken for idle", func(d *Decision, _ *LimitState, _ *LimitExplanation) {
			d.Mode, d.Reason = ModeStale, ReasonOneWay
		}},
		{"closed while partitioned", func(d *Decision, s *LimitState, _ *LimitExplanation) {
			d.Allowed, d.Basis, d.Mode, d.Reason, s.Ceiling = false, BasisClosed, ModeStale, ReasonPeerSilent, 0
		}},
		{"redis is away", func(d *Decision, s *LimitState, _ *LimitExplanation) {
			d.Basis, d.Mode, d.Reason, s.Ceiling, s.Remaining = BasisLocal, ModeLocal, ReasonBreakerOpen, 100, 99
		}},
		{"redis is away and the policy opens", func(d *Decision, _ *LimitState, _ *LimitExplanation) {
			d.Basis, d.Mode, d.Reason = BasisOpen, ModeLocal, ReasonRedisDown
		}},
		{"redis is away and the policy closes", func(d *Decision, _ *LimitState, _ *LimitExplanation) {
			d.Allowed, d.Basis, d.Mode, d.Reason = false, BasisClosed, ModeLocal, ReasonRedisTimeout
		}},
		{"redis is busy", func(d *Decision, _ *LimitState, _ *LimitExplanation) {
			d.Allowed, d.Basis, d.Reason, d.Limits = false, BasisShed, ReasonOverloaded, nil
		}},
		{"redis is busy and the policy opens", func(d *Decision, _ *LimitState, _ *LimitExplanation) {
			d.Basis, d.Reason = BasisOpen, ReasonOverloaded
		}},
		{"bound by its share", bound(BoundTerms{Units: 660, Share: 220, Lent: 20, Borrowed: 60, Recalled: 10, Estimate: 500, Binds: "share"})},
		{"all of the share is lent", func(d *Decision, s *LimitState, e *LimitExplanation) {
			d.Allowed, s.Denied, s.RetryAfter, s.Ceiling, s.Remaining = false, true, time.Second, 0, 0
			e.Bound = &BoundTerms{Units: 660, Share: 220, Lent: 220, Binds: "share"}
		}},
		{"bound by the estimate", bound(BoundTerms{Units: 660, Share: 270, Estimate: 250, Binds: "estimate"})},
		{"closed while the clock is wrong", closed(ReasonBoundClosed, time.Second, BoundTerms{Units: 600, Share: 200, Drifting: true, Binds: "closed"})},
		{"closed until redis was read", closed(ReasonBoundClosed, time.Second, BoundTerms{Units: 600, Share: 200, Binds: "closed"})},
		{"burnt after a loss", closed(ReasonBoundBurnt, time.Second, BoundTerms{Units: 600, Share: 200, BurntMS: 58_001, Binds: "burnt"})},
		{"burnt, and others lend", func(d *Decision, s *LimitState, e *LimitExplanation) {
			d.Reason, s.Reason, s.Ceiling, s.Remaining = ReasonBoundBurnt, ReasonBoundBurnt, 60, 20
			e.Bound = &BoundTerms{Units: 600, Share: 200, Borrowed: 60, BurntMS: 58_001, Binds: "burnt"}
		}},
		{"burnt until the period ends, and others lend", func(d *Decision, s *LimitState, e *LimitExplanation) {
			peers := e.Peers
			monthly(s, e)
			d.Reason, s.Reason, s.Ceiling, s.Remaining = ReasonBoundBurnt, ReasonBoundBurnt, 60, 20
			e.Peers, e.Bound = peers, &BoundTerms{Units: 10_000, Share: 200, Borrowed: 60, BurntMS: 58_001, Binds: "burnt"}
		}},
		{"burnt while partitioned", func(d *Decision, s *LimitState, e *LimitExplanation) {
			closed(ReasonBoundBurnt, 58_001*time.Millisecond, BoundTerms{Units: 600, Share: 200, BurntMS: 58_001, Binds: "burnt"})(d, s, e)
			d.Mode = ModePartitioned
		}},
		{"burnt, and there is no other region", func(d *Decision, s *LimitState, e *LimitExplanation) {
			closed(ReasonBoundBurnt, 58_001*time.Millisecond, BoundTerms{Units: 600, Share: 600, BurntMS: 58_001, Binds: "burnt"})(d, s, e)
			e.Peers = nil
		}},
		{"bound under an override", bound(BoundTerms{Units: 660, Share: 250, Binds: "share", Overridden: true, KeepMS: 93_966})},
		{"bound under an override, and another region has another file", bound(BoundTerms{
			Units: 660, Share: 250, Binds: "share", Differ: []string{"us-east"}, PendingMS: 90_300, Overridden: true, KeepMS: 93_966,
		})},
		{"another region has another file", bound(BoundTerms{Units: 660, Share: 250, Binds: "share", Differ: []string{"us-east"}, PendingMS: 90_300})},
		{"another region had another file", bound(BoundTerms{Units: 660, Share: 250, Binds: "share", PendingMS: 41_300})},
		{"the file of another region is not known", bound(BoundTerms{Units: 660, Share: 250, Binds: "share", Unseen: []string{"us-east", "ap-south"}})},
		{"another region had another file, and that of a third is not known", bound(BoundTerms{Units: 660, Share: 250, Binds: "share", Unseen: []string{"ap-south"}, PendingMS: 5_700})},
		{"bound and closed by the policy", func(d *Decision, s *LimitState, e *LimitExplanation) {
			d.Allowed, d.Basis, d.Mode, d.Reason, s.Ceiling = false, BasisClosed, ModeStale, ReasonPeerSilent, 0
			e.Bound = &BoundTerms{Units: 600, Share: 1000, Binds: "share"}
		}},
		{"a dead region is treated as unreachable", func(d *Decision, _ *LimitState, e *LimitExplanation) {
			d.Mode, d.Reason = ModePartitioned, ReasonPeerSilent
			e.Peers[0].Counted, e.Peers[0].State, e.Peers[0].AgeMS = false, "dead", -1
		}},
		{"nothing may be held", func(_ *Decision, s *LimitState, _ *LimitExplanation) { s.Ceiling, s.Remaining = 0, 0 }},
	} {
		fmt.Fprintf(&got, "# %s\n%s\n\n", row.name, strings.Join(told(row.change).Sentences(), "\n"))
	}
	const file = "testdata/sentences.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("it says (-update writes %s anew):\n%s", file, got.String())
	}
	if s := (&Decision{}).Sentences(); s != nil {
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
	files := []BoundTerms{{}, {PendingMS: 5700}, {Unseen: us}, {Unseen: us, PendingMS: 5700}, {Differ: us, PendingMS: 5700}, {Differ: us, Unseen: us, PendingMS: 5700}}
	binds := []BoundTerms{{Binds: "closed"}, {Binds: "closed", Drifting: true}, {Binds: "burnt", BurntMS: 5700}, {Binds: "share"}, {Binds: "estimate", Estimate: 100}}
	for n := range len(files) * len(binds) * int(BasisShed) {
		b, f, basis := binds[n%len(binds)], files[n/len(binds)%len(files)], Basis(n/len(binds)/len(files))
		b.Units, b.Share, b.Differ, b.Unseen, b.PendingMS = 3000, 1000, f.Differ, f.Unseen, f.PendingMS
		text := strings.Join(told(func(d *Decision, s *LimitState, e *LimitExplanation) {
			d.Basis, s.Ceiling, e.Bound = basis, 1000, &b
		}).Sentences(), "\n")
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
