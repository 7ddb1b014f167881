package main

// meshMutants are mistakes in how regions talk to each other.
func meshMutants() []mutant {
	return []mutant{
		{
			name:   "author-from-the-body",
			breaks: "the author of a message is the region of its subject",
			file:   "sync/wire/error.go",
			old:    "if from.Region == subject {", becomes: `if from.Region != "" {`,
			killers: by("sync/wire", "TestCheckAuthor"),
		},
		{
			name:   "author-not-checked",
			breaks: "a body that names another region than its subject is refused",
			file:   "sync/receive.go",
			old:    "if err := wire.CheckAuthor(region, from); err != nil {", becomes: "if err := wire.CheckAuthor(from.Region, from); err != nil {",
			killers: by("sync", "TestPoisonChangesNothing"),
		},
		{
			name:   "chunk-count-ignored",
			breaks: "a digest is whole when all of its chunks were heard",
			file:   "sync/assembly.go",
			old:    "a.whole = a.total > 0 && a.heard == a.total", becomes: "a.whole = a.total > 0",
			killers: by("sync", "TestAssemblyIsWholeWhenAllChunksWereHeard"),
		},
		{
			name:   "gap-not-noticed",
			breaks: "a message that was missed is asked for again",
			file:   "sync/roster.go",
			old:    "a.gap = seq > p.Seq+1", becomes: "a.gap = seq < p.Seq",
			killers: by("sync", "TestALostBeatIsNoSilence"),
		},
		{
			name:   "late-message-is-the-newest",
			breaks: "a message that was overtaken does not turn a peer's clock back",
			file:   "sync/roster.go",
			old:    "	if seq > p.Seq {\n		p.Seq, p.ClockUS", becomes: "	if seq > 0 {\n		p.Seq, p.ClockUS",
			killers: by("sync", "TestLateMessagesChangeNothing"),
		},
		{
			name:   "ack-vector-ignored",
			breaks: "who does not acknowledge us is not taken to hear us",
			file:   "sync/peers.go",
			old:    "if !ok || ours.seq <= p.ackedSeq {", becomes: "if ours.at = max(now, 1); false {",
			killers: by("sync", "TestOneWayCutShowsInAcked"),
		},
		{
			name:   "silence-keeps-the-digest",
			breaks: "who was silent has to tell all of its totals again",
			file:   "sync/roster.go",
			old:    "if a.back {\n		p.distrust()", becomes: "if a.back && seq == 0 {\n		p.distrust()",
			killers: by("sync", "TestSilenceCostsTheDigest"),
		},
		{
			name:   "who-left-comes-back",
			breaks: "what is still under way from a process that left does not bring it back",
			file:   "sync/roster.go",
			old:    "if _, left := r.gone[from]; left {", becomes: "if until, left := r.gone[from]; left && now > until {",
			killers: by("sync", "TestLateMessagesDoNotBringBackWhoLeft"),
		},
		{
			name:   "leaves-without-a-word",
			breaks: "a process that stops publishes what it has admitted first",
			file:   "sync/step.go",
			old:    "	m.publishAll()\n", becomes: "",
			killers: by("sync", "TestLeavingPublishesEverythingFirst"),
		},
		{
			name:   "left-over-totals-dropped",
			breaks: "what the bus did not take is published later",
			file:   "sync/publish.go",
			old:    "		if err != nil {\n			return err\n		}\n		if b.left = left; sent {", becomes: "		if err != nil {\n			b.left = nil\n			return err\n		}\n		if b.left = left; sent {",
			killers: by("sync", "TestOutboxOutlivesTheBus"),
		},
		{
			name:   "slow-reader-is-a-lost-connection",
			breaks: "a process that reads too slowly goes on with the digest that it was asked for",
			file:   "sync/step.go",
			old:    "func (m *Mesh) Missed() { m.catchUpSoon() }", becomes: "func (m *Mesh) Missed() { m.Reconnected() }",
			killers: by("sync", "TestCatchesUpOnceASecond"),
		},
		{
			name:   "too-large-keeps-the-rest-back",
			breaks: "a message that is too large for the bus goes out in pieces",
			file:   "sync/publish.go",
			old:    "		return m.halved(all), false, nil", becomes: "		return all, false, err",
			killers: by("sync", "TestTooLargeGoesOutInPieces"),
		},
		{
			name:   "two-buckets-whatever-the-limit",
			breaks: "the rolling digest of fine buckets passes by everything in its time",
			file:   "sync/publish.go",
			old:    "own := m.o.Totals.Own()", becomes: "own := 2 * m.o.Totals.Series()",
			killers: by("sync", "TestRollingDigestOfManyBucketsGoesRoundInTime"),
		},
	}
}
