package limiter_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/capture"
)

// nearRig is a limiter of a policy under a clock that stands at now, and its log.
func nearRig(t *testing.T, now *time.Time, g limiter.Global, limits ...quota.Limit) (*rig, *capture.Log) {
	t.Helper()
	log, c := &capture.Log{}, onePolicy(quota.Policy{Name: "standard", Limits: limits})
	c.Global = g
	return newRig(t, limiter.Options{Config: c, Logger: slog.New(slog.NewTextHandler(log, nil)), Now: func() time.Time { return *now }}), log
}

// TestNear: a tenant that comes near a limit is logged and counted once until what it used has aged out, whatever was denied and
// looked at meanwhile, and each tenant and limit by itself.
func TestNear(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_795_198_405, 0)
	r, log := nearRig(t, &now, nil, quota.Limit{Name: "minute", Units: 10, Window: time.Minute, Near: 90}, quota.Limit{Name: "hour", Units: 30, Window: time.Hour})
	if n, there := r.count(t, "regiond.near", "policy=standard", "limit=minute"), r.collected(t)["regiond.near"]; n != 0 || there.Name == "" {
		t.Errorf("before anything was used %d tenants were near", n)
	}
	for _, step := range []struct {
		what, tenant string
		after        time.Duration
		cost         int64
		want         int64 // lines so far
	}{
		{"below", "acme", 0, 8, 0},
		{"denied", "acme", 0, 3, 0},
		{"at 90 %", "acme", time.Second, 1, 1},
		{"again", "acme", time.Second, 1, 1},
		{"another", "globex", 0, 10, 2},
		{"until a window has passed", "acme", 58*time.Second + 500*time.Millisecond, 8, 2},
		{"since it was at 90 %", "acme", time.Second, 1, 3},
		{"after a window", "initech", time.Hour, 1, 3},
	} {
		now = now.Add(step.after)
		r.check(t, step.tenant, step.cost)
		must(r.Peek(t.Context(), quota.Request{Tenant: step.tenant, Cost: 1}))(t)
		lines := int64(strings.Count(log.String(), "a tenant is near a limit"))
		if n := r.count(t, "regiond.near", "policy=standard", "limit=minute"); lines != step.want || n != step.want {
			t.Errorf("%s: %d lines, %d counted, want %d", step.what, lines, n, step.want)
		}
	}
	if !strings.Contains(log.String(), `tenant=acme policy=standard limit=minute used=9 remaining=1 units=10 window=1m`) {
		t.Errorf("log:\n%s", log.String())
	}
	r.check(t, "acme", 9)
	if n := strings.Count(log.String(), "tenant=acme"); n != 3 {
		t.Errorf("%d lines about acme, want one of each window:\n%s", n, log.String())
	}
}

// TestNearOfAllRegions: what other regions used counts while the region sees them; otherwise its share does.
func TestNearOfAllRegions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		ceiling int64
		mode    quota.Mode
		cost    int64
		near    bool
	}{
		{100, quota.ModeGlobal, 79, false},
		{100, quota.ModeGlobal, 80, true},
		{30, quota.ModeGlobal, 9, false},
		{30, quota.ModeGlobal, 10, true},       // others used 70
		{30, quota.ModePartitioned, 10, false}, // a share
		{30, quota.ModePartitioned, 24, true},
	} {
		now := time.Unix(1_795_198_405, 0)
		g := &others{ceiling: quota.Ceiling{Units: row.ceiling, Mode: row.mode}}
		r, log := nearRig(t, &now, g, quota.Limit{Name: "global", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal, Near: 80})
		r.check(t, "acme", row.cost)
		if near := strings.Contains(log.String(), "a tenant is near"); near != row.near {
			t.Errorf("%+v: near %v\n%s", row, near, log.String())
		}
	}
}

// TestNearUnderObserve: what other regions used brings one line a window under observe too, though this region has used nothing that
// could age out.
func TestNearUnderObserve(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_795_198_405, 0)
	limit := quota.Limit{Name: "global", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal, Near: 80}
	for _, ceiling := range []int64{0, 1} {
		g := &others{ceiling: quota.Ceiling{Units: ceiling, Mode: quota.ModeGlobal}}
		r, log := nearRig(t, &now, g, limit)
		c := onePolicy(quota.Policy{Name: "standard", Limits: []quota.Limit{limit}, Enforcement: quota.Observe})
		c.Global = g
		ok(t, r.Configure(c))
		for range 8 {
			now = now.Add(7 * time.Second)
			r.check(t, "acme", 2)
		}
		if n := strings.Count(log.String(), "a tenant is near"); n != 1 {
			t.Errorf("under a ceiling of %d: %d lines in a window, want 1\n%s", ceiling, n, log.String())
		}
	}
}

// TestNearAtTheMark: near begins with the unit that makes the percentage whole.
func TestNearAtTheMark(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_795_198_405, 0)
	for _, row := range []struct {
		near        float64
		units, mark int64
	}{{90, 10, 9}, {99.9, 1000, 999}, {33.3, 1000, 333}, {87.5, 8, 7}, {100, 10, 10}, {0.07, 10000, 7}, {99.99, 10000, 9999}, {50, 3, 2}} {
		r, log := nearRig(t, &now, nil, quota.Limit{Name: "minute", Units: row.units, Window: time.Minute, Near: row.near})
		r.check(t, "acme", row.mark-1)
		before := strings.Contains(log.String(), "a tenant is near")
		r.check(t, "acme", 1)
		if after := strings.Contains(log.String(), "a tenant is near"); before || !after {
			t.Errorf("%v%% of %d: near at %d %v, at %d %v", row.near, row.units, row.mark-1, before, row.mark, after)
		}
	}
}

// TestNearOfMoreUnits: who gets more units while it is near is near again when it has used so many of these, which a metric shows.
func TestNearOfMoreUnits(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_795_198_405, 0)
	limit := quota.Limit{Name: "month", Units: 10, Window: 31 * 24 * time.Hour, Near: 90}
	r, log := nearRig(t, &now, nil, limit)
	r.check(t, "acme", 9)
	limit.Units = 20
	shaped := quota.Limit{Name: "shaped", Units: 20, Burst: 30, Window: time.Hour, Algorithm: quota.GCRA}
	ok(t, r.Configure(onePolicy(quota.Policy{Name: "standard", Limits: []quota.Limit{limit, shaped}})))
	for _, name := range []string{"month", "shaped"} {
		if n := r.count(t, "regiond.limit.units", "policy=standard", "limit="+name); n != 20 {
			t.Errorf("%d units of %s in force, want 20", n, name)
		}
	}
	r.check(t, "acme", 1)
	r.check(t, "acme", 8)
	if n := strings.Count(log.String(), "a tenant is near"); n != 2 {
		t.Errorf("%d lines, want one of 10 units and one of 20\n%s", n, log.String())
	}
}

// TestNearOfManyAtOnce: a tenant whose line there was no room for has one with a later check of the same window.
func TestNearOfManyAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_795_198_405, 0)
	r, log := nearRig(t, &now, nil, quota.Limit{Name: "day", Units: 100, Window: 24 * time.Hour, Near: 90})
	const tenants = 150
	name := func(i int) string { return "t" + string(rune('a'+i/26)) + string(rune('a'+i%26)) }
	for _, cost := range []int64{90, 1} {
		for i := range tenants {
			r.check(t, name(i), cost)
		}
		now = now.Add(time.Minute)
	}
	for i := range tenants {
		if n := strings.Count(log.String(), "tenant="+name(i)+" "); n != 1 {
			t.Errorf("%d lines about %s, want 1", n, name(i))
		}
	}
	if n := r.count(t, "regiond.near", "policy=standard", "limit=day"); n != tenants {
		t.Errorf("%d counted, want %d", n, tenants)
	}
}
