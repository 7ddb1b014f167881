package main

// quotaMutants are mistakes in the arithmetic that all rooms share. Their proofs are
// the room's own: what else would notice is slower.
func quotaMutants() []mutant {
	return []mutant{
		{
			name:   "part-of-a-bucket-rounded-down",
			breaks: "an estimate is never below what was used",
			file:   "quota/total.go",
			old:    "return MulDivUp(units, overlap, length)", becomes: "return units * overlap / length",
			killers: by("quota", "TestCountedIsTheOverlapRoundedUp"),
		},
		{
			name:   "fine-buckets-fade",
			breaks: "three buckets or more never forget a unit that is in the window still",
			file:   "quota/total.go",
			old:    "case overlap >= length || length < window:", becomes: "case overlap >= length:",
			killers: by("quota", "TestCountedFineEdges"),
		},
		{
			name:   "buckets-fall-short-of-the-window",
			breaks: "the full buckets of a limit cover its window",
			file:   "quota/total.go",
			old:    "return (l.WindowUS() + full - 1) / full", becomes: "return l.WindowUS() / full",
			killers: by("quota", "TestBucketsCoverTheWindow"),
		},
		{
			name:   "renewal-taken-for-a-loss",
			breaks: "a clock that steps back loses nothing that was counted",
			file:   "quota/total.go",
			old:    "return -maxRenewals < d && d < maxRenewals", becomes: "return d == 0",
			killers: by("quota", "TestSameKey"),
		},
		{
			name:   "window-rounded-down",
			breaks: "sliding_window errs towards denying",
			file:   "quota/twobucket.go",
			old:    "return MulDivUp(b.Prev, window-(now-b.Start), window) + b.Cur", becomes: "return b.Prev*(window-(now-b.Start))/window + b.Cur",
			killers: by("quota", "TestBucketsUsed"),
		},
		{
			name:   "window-fits-too-soon",
			breaks: "what is denied until a time is admitted then, not before",
			file:   "quota/twobucket.go",
			old:    "return window - q", becomes: "return window - q - 1",
			killers: by("quota", "TestBucketsFits"),
		},
		{
			name:   "gcra-wait-rounded-down",
			breaks: "Retry-After is sound: the cost fits when it is over",
			file:   "quota/level.go",
			old:    "return q + (r+v.Frac+units-1)/units", becomes: "return q + (r+v.Frac)/units",
			killers: by("quota", "TestLevelFalls"),
		},
		{
			name:   "clock-goes-back",
			breaks: "a partition's clock is never behind its newest stamp",
			file:   "quota/tick.go",
			old:    "case offset == 0 && time >= newest, time >= newest && time >= empties:", becomes: "case offset == 0, time >= newest && time >= empties:",
			killers: by("quota", "TestTickNeverBehindNewest"),
		},
		{
			name:   "step-back-stalls",
			breaks: "a clock that was set back goes on at TIME's pace",
			file:   "quota/tick.go",
			old:    "return Tick{Time: time, Now: max(newest, time+offset), Offset: offset}", becomes: "return Tick{Time: time, Now: newest, Offset: newest - time}",
			killers: by("quota", "TestStepBackDoesNotStall"),
		},
		{
			name:   "partitions-collide",
			breaks: "two partitions never share a key, whatever their values contain",
			file:   "quota/partition.go",
			old:    "dst = strconv.AppendInt(dst, int64(len(v)), 10)", becomes: "dst = strconv.AppendInt(dst, 1, 10)",
			killers: by("quota", "TestPartitionsThatLookAlike"),
		},
	}
}
