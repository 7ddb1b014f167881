package main

// hallMutants are mistakes in the clock, at the door, and where the rooms meet.
func hallMutants() []mutant {
	return []mutant{
		{
			name:   "step-not-seen",
			breaks: "a clock that was set is told from one that drifts",
			file:   "clock/estimator.go",
			old:    "if fresh.distance(before) > e.threshold {", becomes: "if fresh.distance(before) > 1000*e.threshold {",
			killers: by("clock", "TestThreshold"),
		},
		{
			name:   "uncertainty-stays",
			breaks: "what is known of a clock grows less certain with time",
			file:   "clock/estimator.go",
			old:    "i := b.possible.widened(b.drifted(age))", becomes: "i := b.possible.widened(b.drifted(0))",
			killers: by("clock", "TestUncertaintyGrowsWithAge"),
		},
		{
			name:   "ways-taken-for-equal",
			breaks: "a clock's estimate needs no assumption about the two ways of a sample",
			file:   "clock/estimator.go",
			old:    "hi: server + tick - s.Sent + drift}", becomes: "hi: server + tick - s.Received + drift}",
			killers: by("clock", "TestTruthIsWithinUncertainty"),
		},
		{
			name:   "time-trusted-after-a-standstill",
			breaks: "a process that stood still does not trust its idea of the time",
			file:   "clock/tracker.go",
			old:    "Valid:       s.trusted && !t.stoodStill(s.beat, now),", becomes: "Valid:       s.trusted,",
			killers: by("clock", "TestTrackerDistrustsItselfAfterAStandstill"),
		},
		{
			name:   "retry-after-rounded-down",
			breaks: "a customer who waits for Retry-After does not come too early",
			file:   "httpapi/fields.go",
			old:    "	s := ceil(d, time.Second)\n", becomes: "	s := int64(d / time.Second)\n",
			killers: by("httpapi", "TestFieldFormats"),
		},
		{
			name:   "estimates-of-the-wrong-region",
			breaks: "a peer's part is held against that peer's use",
			file:   "internal/global/ceilings.go",
			old:    "units = raw[i]", becomes: "units = raw[len(all)]",
			killers: by("cmd/regiond", "TestWorldUsageTravels"),
		},
		{
			name:   "standstill-keeps-the-digests",
			breaks: "a process that stood still asks every peer to tell all again",
			file:   "internal/global/lookout.go",
			old:    "if e.Kind == view.Frozen {\n", becomes: "if e.Kind == view.Frozen && l.o.Mesh == nil {\n",
			killers: by("internal/global", "TestStandstillIsDistrusted"),
		},
		{
			name:   "processes-of-this-moment",
			breaks: "without Redis a ceiling is divided by the most processes seen lately",
			file:   "internal/global/lookout.go",
			old:    "return p.counts[0].count", becomes: "return p.counts[len(p.counts)-1].count",
			killers: by("internal/global", "TestPeakIsTheMostOfTheLastTenMinutes"),
		},
	}
}
