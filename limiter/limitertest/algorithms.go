package limitertest

import "github.com/regiond/regiond/quota"

func algorithmLedgers() []ledger {
	return []ledger{
		{"sliding_log: cost 1", one(logOf(3, 1000)), `
			0    c 1 = a 2 0 1000
			10   c 1 = a 1 0 1000
			10   c 1 = a 0 0 1000
			11   c 1 = d 0 989 999
			999  c 1 = d 0 1 11
			1000 c 1 = a 0 0 1000   // the window is half open: the unit of 0 is outside at 1000
			1009 c 1 = d 0 1 991
			1010 c 1 = a 1 0 1000   // two left at once
			1010 c 1 = a 0 0 1000
			9999 c 1 = a 2 0 1000`},
		{"sliding_log: costs above 1", one(logOf(10, 1000)), `
			0    c 4 = a 6 0 1000
			100  c 6 = a 0 0 1000
			200  c 1 = d 0 800 900
			999  c 4 = d 0 1 101
			1000 c 5 = d 4 100 100
			1000 c 4 = a 0 0 1000
			1100 c 7 = d 6 900 900
			1100 c 6 = a 0 0 1000`},
		{"sliding_log: cost 1, then more, then 1 again", one(logOf(6, 1000)), `
			0    c 1 = a 5 0 1000
			1    c 1 = a 4 0 1000
			2    c 3 = a 1 0 1000
			3    c 1 = a 0 0 1000
			4    c 1 = d 0 996 999
			4    c 2 = d 0 997 999
			4    c 3 = d 0 998 999
			4    c 6 = d 0 999 999
			1000 c 1 = a 0 0 1000
			1001 c 2 = d 1 1 999
			1002 c 4 = a 0 0 1000
			1003 c 1 = a 0 0 1000
			1004 c 1 = d 0 996 999
			2001 c 5 = d 1 1 2
			2002 c 5 = a 0 0 1000`},
		{"sliding_window", one(windowOf(10, 1000)), `
			0    c 10 = a 0 0 2000
			1    c 1  = d 0 1099 1999  // 10·(1000−e)/1000 is at most 9 from e = 100 of the next bucket on
			1000 c 1  = d 0 100 1000
			1099 c 1  = d 0 1 901
			1100 c 1  = a 0 0 1900
			1500 c 4  = a 0 0 1500
			1501 c 1  = d 0 99 1499
			2000 c 5  = a 0 0 2000
			5000 c 10 = a 0 0 2000`},
		{"sliding_window: rounds up", one(windowOf(3, 7000)), `
			0     c 2 = a 1 0 14000
			7000  c 1 = a 0 0 14000
			7001  c 1 = d 0 3499 13999
			10499 c 1 = d 0 1 10501
			10500 c 1 = a 0 0 10500`},
		{"gcra", one(gcraOf(3, 1000, 5)), `
			0    c 5 = a 0 0 1667
			1    c 1 = d 0 333 1666
			333  c 1 = d 0 1 1334
			334  c 1 = a 0 0 1666  // 1.002 had drained
			334  c 2 = d 0 666 1666
			1000 c 2 = a 0 0 1667  // 3 had drained, and 1 charged
			1667 c 2 = a 0 0 1667
			9999 p 5 = a 5 0 0`},
		{"gcra: a rate that does not come out even", one(gcraOf(7, 1000, 0)), `
			0   c 7 = a 0 0 1000
			142 c 1 = d 0 1 858
			143 c 1 = a 0 0 1000
			285 c 1 = d 0 1 858
			286 c 1 = a 0 0 1000
			999 c 4 = a 0 0 859  // 4.991 had drained of 6.998
			999 c 1 = d 0 1 859`},
		{"peek spends nothing", one(logOf(2, 1000), windowOf(3, 1000), gcraOf(2, 1000, 4)), `
			0 p 2 = a 2 0 0 | 3 0 0 | 4 0 0
			0 p 3 = d 2 -1 0 | 3 0 0 | 4 0 0
			0 c 2 = a 0 0 1000 | 1 0 2000 | 2 0 1000
			1 p 1 = d 0 999 999 | 1 0 1999 | 2 0 999
			1 p 1 = d 0 999 999 | 1 0 1999 | 2 0 999`},
		{"report goes past the limit", one(logOf(3, 1000), windowOf(3, 1000), gcraOf(3, 1000, 0)), `
			0    r 2 = a 1 0 1000 | 1 0 2000 | 1 0 667
			0    r 5 = a 0 0 1000 | 0 0 2000 | 0 0 2334
			0    c 1 = d 0 1000 1000 | 0 1715 2000 | 0 1667 2334
			1715 c 1 = a 2 0 1000 | 0 0 1285 | 0 0 952`},
		{"a report above every limit counts as one of its size", one(logOf(3, 1000)), `
			0    r 1_000_000 = a 0 0 1000
			500  r 1         = a 0 0 1000
			1000 c 2         = a 0 0 1000
			1500 c 1         = a 0 0 1000`},
		{"gcra: a report fills up to four times the capacity", one(gcraOf(1, 1000, 2)), `
			0 r 100 = a 0 0 8000
			0 c 1   = d 0 7000 8000`},
		{"huge numbers", one(rule("w", quota.SlidingWindow, quota.MaxUnits, 2_678_400_000_000), gcraOf(quota.MaxUnits, 2_678_400_000_000, 0)), `
			0 c 1_099_511_627_775 = a 1 0 4686395000000 | 1 0 2678399999998
			0 c 2 = d 1 2007995000003 4686395000000 | 1 3 2678399999998`},
	}
}
