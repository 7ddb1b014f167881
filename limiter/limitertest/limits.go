package limitertest

import "github.com/regiond/regiond/quota"

func limitLedgers() []ledger {
	byUser := rule("user", quota.SlidingLog, 2, 1000)
	byUser.By = []string{"user"}
	fine := global(logOf(3, 1000))
	fine.GlobalBuckets = 11
	return []ledger{
		{"all limits or none", one(logOf(3, 1000), byUser, gcraOf(10, 1000, 0)), `
			0    c 1 = a 2 0 1000 | 1 0 1000 | 9 0 100
			1    c 1 = a 1 0 1000 | 0 0 1000 | 8 0 199
			2    c 1 = d 1 0 999  | 0 998 999 | 8 0 198
			3    c 1 = d 1 0 998  | 0 997 998 | 8 0 197  // the denial charged nobody
			1000 c 1 = a 1 0 1000 | 0 0 1000 | 9 0 100`},
		{"three windows over one log", one(logOf(5, 5000), rule("short", quota.SlidingLog, 2, 100), rule("middle", quota.SlidingLog, 3, 1000)), `
			0    c 1 = a 4 0 5000 | 1 0 100 | 2 0 1000
			1    c 1 = a 3 0 5000 | 0 0 100 | 1 0 1000
			2    c 1 = d 3 0 4999 | 0 98 99 | 1 0 999
			100  c 1 = a 2 0 5000 | 0 0 100 | 0 0 1000
			200  c 1 = d 2 0 4900 | 2 0 0 | 0 800 900
			1000 c 2 = d 2 0 4100 | 2 0 0 | 1 1 100
			1001 c 2 = a 0 0 5000 | 0 0 100 | 0 0 1000
			2500 c 1 = d 0 2500 3501 | 2 0 0 | 3 0 0`},
		{"ceilings below the limit, below the cost, and none", one(global(logOf(5, 1000))), `
			0    c 2 @5 = a 3 0 1000
			1    c 2 @3 = d 1 999 999
			1    c 1 @3 = a 0 0 1000
			2    c 1 @3 = d 0 998 999
			2    c 3 @2 = d 0 -1 999
			2    c 1 @0 = d 0 -1 999
			3    c 2 @5 = a 0 0 1000
			1000 c 2 @4 = d 1 1 3
			1001 c 2 @4 = a 0 0 1000`},
		{"a ceiling moves for counters too", one(global(windowOf(10, 1000))), `
			0    c 4 @5  = a 1 0 2000
			1    c 2 @5  = d 1 1249 1999
			1    c 2 @10 = a 4 0 1999
			2    c 1 @0  = d 0 -1 1998
			1000 c 1 @6  = d 0 167 1000
			1167 c 1 @6  = a 0 0 1833`},
		{"totals in the shortest buckets", one(fine), `
			0    c 1 @3 = a 2 0 1000
			99   c 1 @3 = a 1 0 1000
			100  c 1 @3 = a 0 0 1000
			101  c 1 @3 = d 0 899 999
			1000 c 1 @3 = a 0 0 1000`},
		{"a batch is one after the other", one(logOf(3, 1000)), `
			0 c 2 = a 1 0 1000
			+ c 2 = d 1 1000 1000
			+ p 1 = a 1 0 1000
			+ c 1 = a 0 0 1000
			+ r 1 = a 0 0 1000
			+ c 1 = d 0 1000 1000`},
		{"a batch sees both of two configurations", map[string][]*quota.Limit{
			"":    {logOf(3, 1000), gcraOf(3, 1000, 0)},
			"new": {logOf(5, 1000), gcraOf(3, 1000, 6)},
		}, `
			0 c 2      = a 1 0 1000 | 1 0 667
			+ c 2      = d 1 1000 1000 | 1 334 667
			+ c 3 ~new = a 0 0 1000 | 1 0 1667
			+ c 1      = d 0 1000 1000 | 0 1000 1667`},
	}
}
