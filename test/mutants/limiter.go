package main

// limiterMutants are mistakes around the scripts: what is sent, how often, and what is
// made of the answer or of its absence.
func limiterMutants() []mutant {
	return []mutant{
		{
			name:   "ttl-is-the-window",
			breaks: "every key lives for two windows: no answer depends on one that expired",
			file:   "limiter/shape.go",
			old:    "return 2*l.Window + ttlMargin", becomes: "return l.Window",
			killers: by("limiter", "TestKeysOutliveTwoWindows"),
		},
		{
			name:   "client-retries",
			breaks: "the charging client never sends a command again by itself",
			file:   "limiter/redis_client.go",
			old:    "MaxRetries:            -1,", becomes: "MaxRetries:            3,",
			killers: by("limiter", "TestLostReplyEachLockHolds"),
		},
		{
			name:   "command-lets-the-client-retry",
			breaks: "a charge is not sent again even by a client that retries",
			file:   "limiter/redis_node.go",
			old:    "func (onceCmd) NoRetry() bool { return true }", becomes: "func (onceCmd) NoRetry() bool { return false }",
			killers: by("limiter", "TestLostReplyEachLockHolds"),
		},
		{
			name:   "retry-on-a-lost-reply",
			breaks: "only a reply that means \"not executed\" is followed by another attempt",
			file:   "limiter/redis_node.go",
			old:    `if err != nil && strings.HasPrefix(err.Error(), noScript) {`, becomes: `if err != nil && !strings.HasPrefix(err.Error(), "OOM") {`,
			killers: by("limiter", "TestLostReplyChargesNothingTwice"),
		},
		{
			name:   "lost-writes-unnoticed",
			breaks: "what Redis had confirmed and lost is counted",
			file:   "limiter/redis_marker.go",
			old:    "if held < m.told &&", becomes: "if held > m.told &&",
			killers: by("limiter", "TestSentinelLosesWrites"),
		},
		{
			name:   "moving-slot-is-an-outage",
			breaks: "a slot on its way says nothing against its server",
			file:   "limiter/redis_node.go",
			old:    "errors.As(err, &e) && !e.moving {", becomes: "errors.As(err, &e) {",
			killers: by("limiter", "TestCluster/a_slot_is_half_moved"),
		},
		{
			name:   "reply-of-another-call",
			breaks: "a decision about somebody else is never used",
			file:   "limiter/script.go",
			old:    "if got != nonce || err != nil || time <= 0 {", becomes: `if got == "" || err != nil || time <= 0 {`,
			killers: by("limiter", "FuzzReplies"),
		},
		{
			name:   "withdrawn-call-is-sent",
			breaks: "a caller whose time ran out before sending is not charged",
			file:   "limiter/collector.go",
			old:    "if j.state.CompareAndSwap(jobWaiting, jobSent) {", becomes: "if j.state.Swap(jobSent) != jobSent {",
			killers: by("limiter", "TestCollectorRandom"),
		},
		{
			name:   "denial-for-another-cost",
			breaks: "a remembered denial holds for the cost that was denied",
			file:   "limiter/denials.go",
			old:    "!now.Before(e.until) || e.cost != c.Cost {", becomes: "!now.Before(e.until) {",
			killers: by("limiter", "TestDenialsTable"),
		},
		{
			name:   "denial-under-a-higher-ceiling",
			breaks: "a remembered denial holds under ceilings that are not higher",
			file:   "limiter/denials.go",
			old:    "if ceiling > e.ceilings[i] {", becomes: "if ceiling < e.ceilings[i] {",
			killers: by("limiter", "TestDenialsTable"),
		},
		{
			name:   "denial-beyond-its-time",
			breaks: "a denial is remembered for a second at most",
			file:   "limiter/denials.go",
			old:    "until: sent.Add(min(lasts, maxMemory)), heard: heard,", becomes: "until: sent.Add(lasts), heard: heard,",
			killers: by("limiter", "TestDenialsTable"),
		},
		{
			name:   "denial-counted-from-its-answer",
			breaks: "a denial ends with its retry time, counted from before it was asked for",
			file:   "limiter/denials.go",
			old:    "until: sent.Add(min(lasts, maxMemory)), heard: heard,", becomes: "until: heard.Add(min(lasts, maxMemory)), heard: heard,",
			killers: by("limiter", "TestDenialsTable"),
		},
		{
			name:   "cost-above-the-limit-is-asked",
			breaks: "a cost that can never be admitted is refused as such, not told to come back",
			file:   "limiter/config.go",
			old:    "if q.request.Cost > l.Capacity() {", becomes: "if q.request.Cost > 1<<50+l.Capacity() {",
			killers: by("limiter", "TestConfigRefusesRequests"),
		},
		{
			name:   "local-part-not-divided",
			breaks: "without Redis the processes of a region hold its ceiling together, not each",
			file:   "limiter/fallback.go",
			old:    "call.Ceilings[i] = c / processes", becomes: "call.Ceilings[i] = c",
			killers: by("limiter", "TestFallbackShareRemembers"),
		},
		{
			name:   "local-admissions-untold",
			breaks: "what is admitted without Redis is published like the rest",
			file:   "limiter/fallback.go",
			old:    "if rules.Global != nil {", becomes: "if rules.Global != nil && call.Cost < 0 {",
			killers: by("limiter", "TestGlobalLocal"),
		},
		{
			name:   "reset-forgets-totals",
			breaks: "a reset takes nothing back of what peers were told",
			file:   "limiter/redis.go",
			old:    "return strings.HasPrefix(key, prefix+totalMark) }", becomes: "return strings.HasPrefix(key, totalMark) }",
			killers: by("limiter", "TestGlobalTotalsOutliveAReset"),
		},
		{
			name:   "memory-edge",
			breaks: "a window in memory is half open as in Redis",
			file:   "limiter/memory_key.go",
			old:    "return sort.Search(len(k.log), func(i int) bool { return k.log[i].us > edge })", becomes: "return sort.Search(len(k.log), func(i int) bool { return k.log[i].us >= edge })",
			killers: by("limiter", "TestConformance"),
		},
		{
			name:   "memory-evicts-what-is-live",
			breaks: "a partition in memory is kept while an answer depends on it",
			file:   "limiter/memory.go",
			old:    "dropSome(s.keys, func(k *memoryKey) bool { return k.expires <= now })", becomes: "dropSome(s.keys, func(k *memoryKey) bool { return k.newest < now })",
			killers: by("limiter", "TestMemoryNeverForgetsTheLive"),
		},
	}
}
