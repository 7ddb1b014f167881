package limitertest

import (
	"context"
	"testing"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
)

// sets are two configurations: what was in force, and what is now.
func sets(old, now *quota.Limit) map[string][]*quota.Limit {
	return map[string][]*quota.Limit{"": {old}, "new": {now}}
}

func reshapeLedgers() []ledger {
	return []ledger{
		{"a raised limit", sets(logOf(2, 1000), logOf(4, 1000)), `
			0    c 1      = a 1 0 1000
			1    c 1      = a 0 0 1000
			2    c 1      = d 0 998 999
			2    c 1 ~new = a 1 0 1000
			3    c 2 ~new = d 1 997 999
			1000 c 1 ~new = a 1 0 1000`},
		{"a report above the limit, and a raised limit", sets(logOf(3, 1000), logOf(10, 1000)), `
			0 r 1_000_000 = a 0 0 1000
			1 c 7 ~new    = a 0 0 1000  // the report counts as the three that there were
			1 c 1 ~new    = d 0 999 1000`},
		{"a lowered limit", sets(logOf(4, 1000), logOf(2, 1000)), `
			0    c 1      = a 3 0 1000
			1    c 1      = a 2 0 1000
			2    c 1      = a 1 0 1000
			3    c 1 ~new = d 0 998 999
			1001 c 1 ~new = a 0 0 1000
			1001 p 1      = a 2 0 1000`},
		{"a lowered limit and costs above 1", sets(logOf(10, 1000), logOf(5, 1000)), `
			0    c 4      = a 6 0 1000
			1    c 4      = a 2 0 1000
			2    c 1 ~new = d 0 998 999
			1000 c 1 ~new = a 0 0 1000
			1001 c 5 ~new = d 4 999 999
			2000 c 5 ~new = a 0 0 1000`},
		{"a longer window", sets(logOf(2, 1000), logOf(2, 3000)), `
			0    c 1      = a 1 0 1000
			1000 c 1      = a 1 0 1000
			1500 c 1 ~new = d 0 1500 2500  // the log goes back as far as that
			1500 c 1      = a 0 0 1000
			2999 c 1 ~new = d 0 1001 1501`},
		{"a shorter window", sets(logOf(2, 3000), logOf(2, 1000)), `
			0    c 2      = a 0 0 3000
			1000 c 1      = d 0 2000 2000
			1000 c 1 ~new = a 1 0 1000
			1500 c 1      = d 0 1500 2500`},
		{"a sliding_window of another length", sets(windowOf(10, 1000), windowOf(10, 4000)), `
			500  c 6      = a 4 0 1500
			1500 c 5 ~new = a 2 0 6500  // the three that were left, spent just now
			1500 c 3 ~new = d 2 3000 6500
			4499 c 3 ~new = d 2 1 3501
			4500 c 3 ~new = a 0 0 7500`},
		{"a gcra of another rate", sets(gcraOf(10, 1000, 0), gcraOf(10, 2000, 0)), `
			0   c 8      = a 2 0 800
			100 c 1 ~new = a 1 0 1700`},
		{"a gcra of a lower burst", sets(gcraOf(10, 1000, 10), gcraOf(10, 1000, 2)), `
			0 c 10     = a 0 0 1000
			0 c 1 ~new = d 0 700 800`},
	}
}

func recordLedgers() []ledger {
	return []ledger{
		{"an admission is replayed for a minute", one(logOf(3, 1000)), `
			0          c 2 #k=1 = a 1 0 1000
			10         c 2 #k=1 = m 1 0 1000
			10         c 1 #k=2 = x
			11         c 1      = a 0 0 1000   // charged once
			12         c 1 #n=1 = d 0 988 999
			13         c 1 #n=2 = d 0 987 998  // a denial is not kept
			-100       c 2 #k=1 = m 1 0 1000
			59_999_999 c 2 #k=1 = m 1 0 1000
			60_000_000 c 2 #k=2 = a 1 0 1000   // over, whether it has expired or not
			+          c 2 #k=2 = m 1 0 1000
			+          c 1 #k=1 = x`},
		{"a report is replayed too", one(logOf(3, 1000), gcraOf(3, 1000, 0)), `
			0    r 5 #k=1 = a 0 0 1000 | 0 0 1667
			1    r 5 #k=1 = m 0 0 1000 | 0 0 1667
			1667 p 3      = a 3 0 0 | 3 0 0`},
		{"a record that knows of more limits than there are", map[string][]*quota.Limit{
			"": {logOf(3, 1000), gcraOf(3, 1000, 0)}, "new": {logOf(3, 1000)},
		}, `
			0 c 2 #k=1      = a 1 0 1000 | 1 0 667
			1 c 2 #k=1 ~new = m 1 0 1000
			2 c 2 #k=1      = m 1 0 1000 | 1 0 667
			3 c 1 ~new      = a 0 0 1000`},
		{"a record that is older than a limit", map[string][]*quota.Limit{
			"": {logOf(3, 1000)}, "new": {logOf(3, 1000), gcraOf(3, 1000, 0)},
		}, `
			0 c 2 #k=1      = a 1 0 1000
			1 c 2 #k=1 ~new = m 1 0 1000 | 0 0 0
			2 c 2 #k=1      = m 1 0 1000
			3 c 1 ~new      = a 0 0 1000 | 2 0 334`},
	}
}

func reset(t *testing.T, newStore New) {
	store, now := newStore(t)
	now(Epoch)
	q := Ask(logOf(1, 1000), windowOf(1, 1000))
	left := func(tenant string) string {
		v := decide(t, store, q.Call(tenant, limiter.OpCheck, 1, nil))[0]
		return q.Text(&v)
	}
	fresh, spent := "a 0 0 1000 | 0 0 2000", "d 0 1000 1000 | 0 2000 2000"
	tenants := []string{"a*c", "abc", "a*", "a[b]c", `a\c`, "a?c"}
	record := func(tenant string) byte {
		c := q.Call(tenant, limiter.OpReport, 1, nil)
		c.Record, c.Print = "rl:{"+tenant+"}:i:1.k:", "one"
		return decide(t, store, c)[0].Outcome
	}
	for _, tenant := range tenants {
		if got := left(tenant); got != fresh {
			t.Errorf("%s at first: %s", tenant, got)
		}
		record(tenant)
	}
	if err := store.Reset(context.Background(), "a*c"); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range tenants {
		want, outcome := spent, byte(oracle.Replayed)
		if tenant == "a*c" {
			want, outcome = fresh, oracle.Admitted
		}
		if got := left(tenant); got != want {
			t.Errorf("%s after the reset of a*c: %s, want %s", tenant, got, want)
		}
		if got := record(tenant); got != outcome {
			t.Errorf("%s with its key after the reset of a*c: %c, want %c", tenant, got, outcome)
		}
	}
}
