package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// usageConfig has a limit of each kind.
func usageConfig() limiter.Config {
	c := onePolicy(quota.Policy{Name: "standard", MaxTTL: time.Minute, MaxHold: 100, Limits: []quota.Limit{
		{Name: "minute", Units: 10, Window: time.Minute},
		{Name: "hour", Units: 100, Window: time.Hour, Scope: quota.ScopeGlobal},
		{Name: "user", Units: 5, Window: time.Hour, By: []string{"user"}},
		{Name: "day", Units: 1000, Window: 24 * time.Hour, Algorithm: quota.SlidingWindow},
		{Name: "shape", Units: 50, Window: time.Hour, Algorithm: quota.GCRA, Burst: 50},
		{Name: "tokens", Units: 500, Window: time.Hour, Counts: quota.CountsTokens, HeldFor: time.Minute},
		{
			Name: "month", Units: 300, Window: quota.CalendarMonth.Window(), Algorithm: quota.CalendarPeriods,
			Calendar: &quota.Calendar{Unit: quota.CalendarMonth, Zone: time.UTC, Anchor: 1},
		},
		{Name: "open", Units: 7, Window: time.Minute, Algorithm: quota.Concurrent},
	}})
	c.MaxUnknown, c.MaxValues, c.MaxOverride = 1<<20, 100, 10
	return c
}

// allUsage reads all pages, and returns each row as a line, in order.
func allUsage(t *testing.T, l *limiter.Limiter, u quota.UsageQuery) []string {
	t.Helper()
	rows := map[string]string{}
	for {
		page := must(l.Usage(t.Context(), u))(t)
		for _, r := range page.Rows {
			key := fmt.Sprint(r.Tenant, " ", r.Policy, ".", r.Limit, " ", r.Dimensions)
			rows[key] = fmt.Sprintf("%s: %d used, %d held of %d", key, r.Used, r.Held, r.Units)
			if (r.WindowMS > 0) == (r.Calendar != "") || (r.Calendar == "month") != (r.Limit == "month") {
				t.Errorf("%s counts by a window of %d ms and the calendar %q", key, r.WindowMS, r.Calendar)
			}
			if ends, err := time.Parse(time.RFC3339Nano, r.EndsAt); err != nil || time.Until(ends) <= 0 || time.Until(ends) > 32*24*time.Hour {
				t.Errorf("%s ends at %s (%v)", key, r.EndsAt, err)
			}
		}
		if u.Cursor = page.Next; u.Cursor == "" {
			break
		}
	}
	var lines []string
	for _, line := range rows {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// TestUsage: the pages have what this region has used and holds of each limit, also beyond it, whatever other regions have used, and
// nothing that was not used. Both stores say the same.
func TestUsage(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func() *rig{
		"memory": func() *rig { return memoryRig(t, usageConfig(), nil) },
		"redis": func() *rig {
			return redisRig(t, redisserver.Start(t, redisserver.Options{}).Addr(), usageConfig(), 5*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := make()
			ctx := t.Context()
			for _, report := range []quota.Request{
				{Tenant: "acme", Cost: 4},
				{Tenant: "acme", Cost: 8, Dimensions: user("a:b,-")},
				{Tenant: "globex", Cost: 1, Dimensions: user("x")},
			} {
				must(r.Report(ctx, report))(t)
			}
			if o := r.Reserve(ctx, []quota.Request{{Tenant: "initech", Cost: 30, Reserve: true}})[0]; o.Err != nil || !o.Decision.Allowed {
				t.Fatal(o)
			}
			want := []string{
				"acme standard.day map[]: 12 used, 0 held of 1000",
				"acme standard.hour map[]: 12 used, 0 held of 100",
				"acme standard.minute map[]: 12 used, 0 held of 10",
				"acme standard.month map[]: 12 used, 0 held of 300",
				"acme standard.shape map[]: 12 used, 0 held of 50",
				"acme standard.tokens map[]: 12 used, 0 held of 500",
				"acme standard.user map[]: 4 used, 0 held of 5",
				"acme standard.user map[user:a:b,-]: 5 used, 0 held of 5", // a log keeps no more than its limit
				"globex standard.day map[]: 1 used, 0 held of 1000",
				"globex standard.hour map[]: 1 used, 0 held of 100",
				"globex standard.minute map[]: 1 used, 0 held of 10",
				"globex standard.month map[]: 1 used, 0 held of 300",
				"globex standard.shape map[]: 1 used, 0 held of 50",
				"globex standard.tokens map[]: 1 used, 0 held of 500",
				"globex standard.user map[user:x]: 1 used, 0 held of 5",
				"initech standard.day map[]: 1 used, 0 held of 1000",
				"initech standard.hour map[]: 1 used, 0 held of 100",
				"initech standard.minute map[]: 1 used, 0 held of 10",
				"initech standard.month map[]: 1 used, 0 held of 300",
				"initech standard.open map[]: 0 used, 1 held of 7",
				"initech standard.shape map[]: 1 used, 0 held of 50",
				"initech standard.tokens map[]: 0 used, 30 held of 500",
				"initech standard.user map[]: 1 used, 0 held of 5",
			}
			for _, n := range []int{1, 1000} {
				got := allUsage(t, r.Limiter, quota.UsageQuery{Rows: n})
				if !slices.Equal(got, want) {
					t.Errorf("in pages of %d:\n%s\nwant\n%s", n, join(got), join(want))
				}
			}
			if got := allUsage(t, r.Limiter, quota.UsageQuery{Rows: 100, Policy: "another"}); got != nil {
				t.Errorf("of another policy: %v", got)
			}
			if got := allUsage(t, r.Limiter, quota.UsageQuery{Rows: 100, Policy: "standard"}); len(got) != len(want) {
				t.Errorf("of the policy: %v", got)
			}
			for _, cursor := range []string{"x", "-1", "64", "1.0", "0.x", "0", "0.0.x", "99999999999999999999"} {
				_, err := r.Usage(ctx, quota.UsageQuery{Cursor: cursor, Rows: 1})
				if bad := (*quota.Invalid)(nil); (name == "redis" || cursor != "0") && (!errors.As(err, &bad) || bad.Fields[0].Pointer != "/cursor") {
					t.Errorf("cursor %q: %v", cursor, err)
				}
			}
		})
	}
}

func join(lines []string) (all string) {
	for _, line := range lines {
		all += "\t" + line + "\n"
	}
	return all
}

// besides has one client check, a thousand times a second at most, until stop is called, which returns the median and the p99 of the
// times that checks took by whether the list was being read when they began.
func besides(t *testing.T, l *limiter.Limiter, listing *atomic.Bool) (stop func() (quiet, listed [2]time.Duration)) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan [2][]time.Duration, 1)
	go func() {
		var times [2][]time.Duration
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			<-tick.C
			of, began := 0, time.Now()
			if listing.Load() {
				of = 1
			}
			if _, err := l.Check(ctx, quota.Request{Tenant: fmt.Sprint("besides", n/50), Cost: 1}); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			times[of] = append(times[of], time.Since(began))
		}
		done <- times
	}()
	return func() (quiet, listed [2]time.Duration) {
		cancel()
		times := <-done
		for of, p := range []*[2]time.Duration{&quiet, &listed} {
			slices.Sort(times[of])
			if n := len(times[of]); n > 0 {
				*p = [2]time.Duration{times[of][n/2], times[of][n*99/100]}
			}
		}
		return quiet, listed
	}
}

// manyTenants gives tenants a log with one unit each, and returns a limiter of them.
func manyTenants(t *testing.T, srv *redisserver.Server, tenants int) *rig {
	t.Helper()
	stamp := strconv.FormatInt(time.Now().UnixMicro(), 10) + ".0210036000000000" // as log.lua has it
	for first := 0; first < tenants; first += 1000 {
		must(srv.Client().Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := first; i < min(first+1000, tenants); i++ {
				p.RPush(t.Context(), fmt.Sprintf("rl:{t%d}:l:standard:::", i), stamp)
			}
			return nil
		}))(t)
	}
	return redisRig(t, srv.Addr(), onePolicy(quota.Policy{Limits: []quota.Limit{{Name: "hour", Units: 100, Window: time.Hour}}}), 5*time.Second)
}

// TestUsageOfMany: a page has a bounded number of rows, so that memory does not grow with the tenants, and the commands of Redis take
// less than a millisecond. USAGE_TENANTS=1000000 is the measured case, in which a client checks meanwhile, and as long without the
// list in turns of a second.
func TestUsageOfMany(t *testing.T) {
	t.Parallel()
	tenants, measured := 3000, os.Getenv("USAGE_TENANTS")
	if measured != "" {
		var err error
		if tenants, err = strconv.Atoi(measured); err != nil {
			t.Fatal(err)
		}
	}
	srv := redisserver.Start(t, redisserver.Options{})
	r, client := manyTenants(t, srv, tenants), srv.Client()
	ok(t, client.ConfigResetStat(t.Context()).Err())
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var listing atomic.Bool
	turn, stop := time.Now(), func() (quiet, listed [2]time.Duration) { return }
	if measured != "" {
		stop = besides(t, r.Limiter, &listing)
	}
	began, rows, pages, most, heap := time.Now(), 0, 0, 0, uint64(0)
	for u := (quota.UsageQuery{Rows: 1000}); ; pages++ {
		if measured != "" && time.Since(turn) > time.Second {
			listing.Store(false)
			time.Sleep(time.Second) // the turn without the list
			turn = time.Now()
		}
		listing.Store(true)
		page := must(r.Usage(t.Context(), u))(t)
		rows, most = rows+len(page.Rows), max(most, len(page.Rows))
		if pages%16 == 0 {
			runtime.ReadMemStats(&now)
			heap = max(heap, now.HeapAlloc)
		}
		if u.Cursor = page.Next; u.Cursor == "" {
			break
		}
	}
	if rows < tenants || rows > tenants+tenants/10 || most > 1300 {
		t.Errorf("%d rows of %d tenants, %d on one page", rows, tenants, most)
	}
	t.Logf("%d tenants: %d pages in %v, heap %d KiB before, at most %d KiB",
		tenants, pages, time.Since(began).Round(time.Millisecond), before.HeapAlloc>>10, heap>>10)
	if quiet, listed := stop(); measured != "" {
		t.Logf("a check took %v, p99 %v, beside the list and %v, p99 %v, without: %.2f times the p99",
			listed[0], listed[1], quiet[0], quiet[1], float64(listed[1])/float64(quiet[1]))
	}
	times := must(client.Info(t.Context(), "latencystats", "commandstats").Result())(t)
	for _, command := range []string{"evalsha", "scan"} { // p99, since the slowest are those that lost their processor
		found := regexp.MustCompile(`(?m)^latency_percentiles_usec_` + command + `:.*p99=([\d.]+)`).FindStringSubmatch(times)
		if found == nil {
			t.Fatalf("no times of %s:\n%s", command, times)
		}
		t.Log(found[0])
		if us, err := strconv.ParseFloat(found[1], 64); err != nil || measured != "" && us > 1000 {
			t.Errorf("%s took %s µs", command, found[1])
		}
	}
}

// TestUsageIsWhatPeekSays: whatever limits a policy has, the list has of each partition what a look at that limit shows.
func TestUsageIsWhatPeekSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) { usageIsWhatPeekSays(t, rt) })
}

func usageIsWhatPeekSays(t *testing.T, rt *rapid.T) {
	now := time.Unix(1_795_198_405, 0)
	p := quota.Policy{Name: "standard", EnforcePercent: -1}
	for i := range rapid.IntRange(1, 6).Draw(rt, "limits") {
		l := quota.Limit{
			Name: fmt.Sprintf("l%d", i), Units: rapid.Int64Range(50, 60).Draw(rt, "units"),
			Window:    time.Duration(i+1) * time.Hour,
			Algorithm: rapid.SampledFrom([]quota.Algorithm{quota.SlidingLog, quota.SlidingLog, quota.SlidingWindow, quota.GCRA, quota.CalendarPeriods}).Draw(rt, "algorithm"),
			Scope:     rapid.SampledFrom([]quota.Scope{quota.ScopeRegion, quota.ScopeGlobal}).Draw(rt, "scope"),
			By:        rapid.SampledFrom([][]string{nil, {"user"}, {"ip", "user"}}).Draw(rt, "by"),
		}
		if rapid.Bool().Draw(rt, "when") {
			l.When = []quota.Match{{Dimension: "route", Value: rapid.SampledFrom([]string{"a:b", "#x,-"}).Draw(rt, "value")}}
		}
		switch l.Algorithm {
		case quota.GCRA:
			l.Burst = l.Units
		case quota.CalendarPeriods:
			l.Scope = quota.ScopeRegion
			l.Calendar = &quota.Calendar{Unit: quota.CalendarDay, Zone: time.UTC}
			l.Window = quota.CalendarDay.Window()
		case quota.SlidingLog:
			if l.Scope == quota.ScopeGlobal && rapid.Bool().Draw(rt, "bounded") {
				_ = l.MaxOvershoot.UnmarshalText([]byte("10%"))
			}
		}
		if len(l.Validate()) > 0 {
			continue
		}
		p.Limits = append(p.Limits, l)
	}
	if len(p.Limits) == 0 || len(p.Validate()) > 0 {
		rt.Skip()
	}
	c := onePolicy(p)
	c.Dimensions = []string{"user", "ip", "route"}
	r := memoryRig(t, c, func() time.Time { return now })
	requests := map[string]quota.Request{}
	for range rapid.IntRange(1, 6).Draw(rt, "requests") {
		q := quota.Request{Tenant: rapid.SampledFrom([]string{"acme", "a:l:standard::", "%7B"}).Draw(rt, "tenant"), Cost: rapid.Int64Range(1, 8).Draw(rt, "cost")}
		for _, name := range []string{"ip", "route", "user"} {
			if v := rapid.SampledFrom([]string{"", "a:b", "#x,-", "3.abc:", "-", "::1"}).Draw(rt, name); v != "" {
				q.Dimensions = append(q.Dimensions, quota.Dimension{Name: name, Value: v})
			}
		}
		must(r.Report(t.Context(), q))(rt)
		requests[fmt.Sprint(q.Tenant, q.Dimensions)] = q
	}
	want, got := map[string]int64{}, map[string]int64{}
	for _, q := range requests {
		q.Cost = 1
		d := must(r.Peek(t.Context(), q))(rt)
		for _, s := range d.Limits {
			by := map[string]string{}
			for _, x := range q.Dimensions {
				for _, name := range s.Limit.By {
					if name == x.Name {
						by[x.Name] = x.Value
					}
				}
			}
			if s.Used() > 0 {
				want[fmt.Sprint(q.Tenant, " ", s.Limit.Name, " ", by)] = s.Used()
			}
		}
	}
	synctest.Test(t, func(t *testing.T) { // where pauses take no time
		for u := (quota.UsageQuery{Rows: 3}); ; {
			page, err := r.Usage(t.Context(), u)
			if err != nil {
				t.Error(err)
				return
			}
			for _, row := range page.Rows {
				by := map[string]string{}
				maps.Copy(by, row.Dimensions)
				got[fmt.Sprint(row.Tenant, " ", row.Limit, " ", by)] = row.Used
			}
			if u.Cursor = page.Next; u.Cursor == "" {
				return
			}
		}
	})
	if fmt.Sprint(want) != fmt.Sprint(got) {
		rt.Fatalf("limits %+v\npeeks %v\nlist  %v", p.Limits, want, got)
	}
}

// TestUsageOfAnotherServer: a cursor that another server gave, before a failover or a restart, is refused: that has the same keys in
// another order, and a tenant would be missing from the bill.
func TestUsageOfAnotherServer(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{})
	const tenants = 2000
	r := manyTenants(t, srv, tenants)
	seen := map[string]bool{}
	for u, page := (quota.UsageQuery{Rows: 500}), 0; ; page++ {
		rows, err := r.Usage(t.Context(), u)
		if bad := (*quota.Invalid)(nil); page > 0 && errors.As(err, &bad) && bad.Fields[0].Pointer == "/cursor" {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows.Rows {
			seen[row.Tenant] = true
		}
		if u.Cursor = rows.Next; u.Cursor == "" {
			break
		}
		if page == 0 {
			srv.Restart()
			manyTenants(t, srv, tenants)
		}
	}
	t.Errorf("the list ended with %d of %d tenants", len(seen), tenants)
}

// TestUsageUnderOverrides: a row has the units that are in force for the tenant, of a limit with a bound too.
func TestUsageUnderOverrides(t *testing.T) {
	t.Parallel()
	o := &overlay{all: map[string]*quota.Override{}}
	r := newRig(t, limiter.Options{
		Overrides: o, Config: withMost(10, quota.Policy{Name: "standard", EnforcePercent: -1, Limits: []quota.Limit{
			{Name: "open", Units: 5, Window: time.Minute}, {Name: "bound", Units: 10, Window: time.Hour, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict},
		}}),
	})
	must(r.Report(t.Context(), quota.Request{Tenant: "acme", Cost: 2}))(t)
	o.set("acme", "", quota.OverrideLimit{Name: "bound", Units: 40}, quota.OverrideLimit{Name: "open", Units: 90})
	want := []string{"acme standard.bound map[]: 2 used, 0 held of 40", "acme standard.open map[]: 2 used, 0 held of 50"}
	if got := allUsage(t, r.Limiter, quota.UsageQuery{Rows: 10}); !slices.Equal(got, want) {
		t.Errorf("%swant\n%s", join(got), join(want))
	}
}

// withMost is a configuration of one policy in which an override may have that many times the units.
func withMost(times int64, p quota.Policy) limiter.Config {
	c := onePolicy(p)
	c.MaxOverride = times
	return c
}
