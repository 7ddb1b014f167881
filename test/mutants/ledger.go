package main

// ledgerMutants are mistakes in what is held of every region's usage, and in the
// estimates that are read from it.
func ledgerMutants() []mutant {
	return []mutant{
		{
			name:   "maximum-turned-into-addition",
			breaks: "a total that is heard again counts once",
			file:   "sync/ledger/fold.go",
			old:    "c.setUnits(t.Units)", becomes: "c.setUnits(min(c.units()+t.Units, quota.MaxCounter))",
			killers: append(by("sync/ledger", "TestMergeLaws"), by("test/sim", "TestFateSeeds/totals-are-added-instead-of-merged")...),
		},
		{
			name:   "minimum-for-maximum",
			breaks: "of two totals of one name the larger stays",
			file:   "sync/ledger/fold.go",
			old:    "case t.Units <= c.units():", becomes: "case c.units() > 0 && t.Units >= c.units():",
			killers: by("sync/ledger", "TestMergeLaws"),
		},
		{
			name:   "own-total-shrinks",
			breaks: "our own totals only grow, whoever tells of them",
			file:   "sync/ledger/fold.go",
			old:    "c.units = max(c.units, t.Units)", becomes: "c.units = t.Units",
			killers: by("sync/ledger", "TestOwnOnlyGrows"),
		},
		{
			name:   "epoch-ignored",
			breaks: "totals of different epochs are different totals",
			file:   "sync/ledger/cells.go",
			old:    "return uint64(epoch)<<regionBits | uint64(region) }", becomes: "return uint64(min(epoch, 1))<<regionBits | uint64(region) }",
			killers: append(by("sync/ledger", "TestMergeLaws"), by("test/sim", "TestFateSeeds/two-epochs-are-taken-for-one")...),
		},
		{
			name:   "epochs-not-added-up",
			breaks: "a region whose Redis lost its data is not counted lower for it",
			file:   "sync/ledger/estimate.go",
			old:    "out[r] += sp.countedIn(windowUS, c.units(), c.place, atUS)", becomes: "out[r] = max(out[r], sp.countedIn(windowUS, c.units(), c.place, atUS))",
			killers: by("sync/ledger", "TestAgainstTwin"),
		},
		{
			name:   "future-bucket-accepted",
			breaks: "a bucket that begins more than its length after its author's clock is refused",
			file:   "sync/ledger/fold.go",
			old:    "case g.Bucket*g.BucketUS > clockUS+g.BucketUS:", becomes: "case g.Bucket*g.BucketUS > clockUS+3*g.BucketUS:",
			killers: by("sync/ledger", "TestFence"),
		},
		{
			name:   "fence-off",
			breaks: "a total that is over by its author's clock takes no room",
			file:   "sync/ledger/fold.go",
			old:    "if start+g.BucketUS+g.WindowUS <= clockUS {", becomes: "if start+g.BucketUS+g.WindowUS <= 0 {",
			killers: by("sync/ledger", "TestFence"),
		},
		{
			name:   "live-bucket-evicted",
			breaks: "a bucket is kept until the last of its units is out of the window",
			file:   "sync/ledger/shape.go",
			old:    "return place+s.bucketUS+s.windowUS <= nowUS }", becomes: "return place+s.windowUS <= nowUS }",
			killers: by("sync/ledger", "TestOvershoot"),
		},
		{
			name:   "bucket-begins-when-heard",
			breaks: "a bucket keeps its place on the author's clock",
			file:   "sync/ledger/fold.go",
			old:    "f.place = f.nowUS - (clockUS - start)", becomes: "f.place = f.nowUS",
			killers: by("sync/ledger", "TestPlace"),
		},
		{
			name:   "lost-totals-not-counted",
			breaks: "a Redis that forgets does not hand out its limit again",
			file:   "sync/ledger/own.go",
			old:    "return epoch == boot || o.known && (o.life == 0 || !quota.SameKey(epoch, o.life))", becomes: "return epoch == boot",
			killers: by("sync/ledger", "TestLost"),
		},
		{
			name:   "local-totals-not-counted",
			breaks: "what was admitted while Redis was away still counts when it is back",
			file:   "sync/ledger/own.go",
			old:    "return epoch == boot || o.known && (o.life == 0 || !quota.SameKey(epoch, o.life))", becomes: "return epoch != boot && o.known && (o.life == 0 || !quota.SameKey(epoch, o.life))",
			killers: by("sync/ledger", "TestLost"),
		},
		{
			name:   "urgent-as-a-whole-limit",
			breaks: "what could bind is published at once, not at the next tick",
			file:   "sync/ledger/outbox.go",
			old:    "behind > max(1, b.limitUnits/(epsilonInverse*b.peers))", becomes: "behind > max(1, b.limitUnits/b.peers)",
			killers: by("sync/ledger", "TestUrgentEdges"),
		},
		{
			name:   "ahead-counts-as-published",
			breaks: "what was not handed out does not count as published before it is over",
			file:   "sync/ledger/take.go",
			old:    "		case c.shape.over(p.place, nowUS):\n", becomes: "		case c.shape.over(p.place, nowUS) || l.ahead(0, p.bucket, c.shape, nowUS):\n",
			killers: by("sync/ledger", "TestLateReadingLosesNothing"),
		},
	}
}
