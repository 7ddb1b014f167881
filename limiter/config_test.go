package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/quota"
)

// loginPolicy counts by user, and by ip on one route.
func loginPolicy() quota.Policy {
	return quota.Policy{Name: "standard", EnforcePercent: -1, Limits: []quota.Limit{
		{Name: "all", Units: 10, Window: time.Minute},
		{Name: "per-user", Units: 5, Window: time.Minute, By: []string{"user"}},
		{Name: "login", Units: 2, Window: time.Minute, By: []string{"ip"}, When: []quota.Match{{Dimension: "route", Value: "login"}}},
	}}
}

func TestConfigRefusesRequests(t *testing.T) {
	listed := limiter.Config{Policies: []quota.Policy{loginPolicy()}, Tenants: map[string]quota.Tenant{"acme": {Policy: "standard"}}}
	for _, row := range []struct {
		why     string
		config  limiter.Config
		request quota.Request
		fault   quota.Fault
		want    string // all mistakes in one line
	}{
		{
			"a tenant that is not listed", listed,
			quota.Request{Tenant: "globex", Cost: 1},
			quota.FaultInput,
			"tenant: is not listed under tenants, and there is no default",
		},
		{
			"a policy that is not there", onePolicy(loginPolicy()),
			quota.Request{Tenant: "acme", Policy: "gold", Cost: 1},
			quota.FaultInput,
			`policy: "gold" is not a policy`,
		},
		{
			"the policy of a domain",
			limiter.Config{
				Policies: []quota.Policy{loginPolicy()}, Default: &quota.Tenant{Policy: "standard"},
				Domains: []quota.Domain{{Policy: &quota.Policy{Name: "rls-edge"}, Tenant: "edge"}},
			},
			quota.Request{Tenant: "acme", Policy: "rls-edge", Cost: 1},
			quota.FaultInput,
			`policy: "rls-edge" is of a rate limit domain: ask for its descriptors over gRPC, with hits_addend 0 to look`,
		},
		{
			"a typo in a dimension", onePolicy(loginPolicy()),
			quota.Request{Tenant: "acme", Cost: 1, Dimensions: quota.Dimensions{{Name: "usr", Value: "1"}}},
			quota.FaultInput,
			"dimensions/usr: is not a dimension of any policy; they use ip, route, user",
		},
		{
			"a cost that no wait can help", onePolicy(loginPolicy()),
			quota.Request{Tenant: "acme", Cost: 6},
			quota.FaultCost,
			"cost: 6 can never be admitted: limit per-user of policy standard holds 5",
		},
		{
			"a cost above a limit that applies here only", onePolicy(loginPolicy()),
			quota.Request{Tenant: "acme", Cost: 3, Dimensions: quota.Dimensions{{Name: "route", Value: "login"}}},
			quota.FaultCost,
			"cost: 3 can never be admitted: limit login of policy standard holds 2",
		},
		{
			"no cost", onePolicy(loginPolicy()),
			quota.Request{Tenant: "acme"},
			quota.FaultInput,
			"cost: must be a whole number between 1 and 1099511627776",
		},
		{
			"several mistakes at once", onePolicy(loginPolicy()),
			quota.Request{Tenant: "a b", Policy: "gold", Cost: -1},
			quota.FaultInput,
			`tenant: must be printable ASCII without space or braces, byte 1 is ' '; cost: must be a whole number between 1 and 1099511627776; policy: "gold" is not a policy`,
		},
	} {
		r := memoryRig(t, row.config, nil)
		_, err := r.Check(context.Background(), row.request)
		var bad *quota.Invalid
		if !errors.As(err, &bad) || bad.Fault != row.fault || (bad.Limit != nil) != (row.fault == quota.FaultCost) || bad.Error() != row.want {
			t.Errorf("%s:\n got %v\nwant %s", row.why, err, row.want)
		}
		if n := r.count(t, "regiond.decisions"); n != 0 {
			t.Errorf("%s: counted as %d decisions", row.why, n)
		}
	}
}

// Limits apply where their condition holds, and count by what the request has.
func TestConfigChoosesLimits(t *testing.T) {
	r := memoryRig(t, onePolicy(loginPolicy()), nil)
	for _, row := range []struct {
		dims string
		want string // limit names with what remains
	}{
		{"", "all=9 per-user=4"},
		{"user=1", "all=8 per-user=4"},
		{"route=login ip=9 user=1", "all=7 per-user=3 login=1"},
		{"route=login user=2", "all=6 per-user=4 login=1"}, // no ip: the shared anonymous one
		{"route=logout ip=9", "all=5 per-user=3"},
	} {
		req := quota.Request{Tenant: "acme", Cost: 1}
		for _, field := range strings.Fields(row.dims) {
			name, value, _ := strings.Cut(field, "=")
			req.Dimensions = append(req.Dimensions, quota.Dimension{Name: name, Value: value})
		}
		req.Dimensions.Sort()
		d, err := r.Check(context.Background(), req)
		var got []string
		for i := range d.Limits {
			got = append(got, fmt.Sprintf("%s=%d", d.Limits[i].Limit.Name, d.Limits[i].Remaining))
		}
		if s := strings.Join(got, " "); err != nil || s != row.want {
			t.Errorf("%q: %s (%v), want %s", row.dims, s, err, row.want)
		}
	}
}

func TestConfigWithoutApplyingLimits(t *testing.T) {
	p := loginPolicy()
	p.Limits = p.Limits[2:]
	r := memoryRig(t, onePolicy(p), nil)
	if d := r.check(t, "acme", 1_000_000); !d.Allowed || len(d.Limits) != 0 || d.Headline() != -1 {
		t.Errorf("%+v, want an allowed decision without limits", d)
	}
}

func TestConfigBadKeepsTheOld(t *testing.T) {
	good := onePolicy(quota.Policy{Limits: perMinute(2)})
	for _, row := range []struct {
		why  string
		bad  limiter.Config
		want string
	}{
		{
			"a limit of nothing", onePolicy(quota.Policy{Limits: perMinute(0)}),
			"configure limiter: policy standard: limits/0/units: must be between 1 and 1099511627776, is 0",
		},
		{
			"a default of nowhere",
			limiter.Config{Policies: good.Policies, Default: &quota.Tenant{Policy: "gold"}},
			`configure limiter: a tenant has policy "gold", which is not defined`,
		},
		{
			"a tenant of nowhere",
			limiter.Config{Policies: good.Policies, Tenants: map[string]quota.Tenant{"acme": {Policy: "gold"}}},
			`configure limiter: a tenant has policy "gold", which is not defined`,
		},
	} {
		r := memoryRig(t, good, nil)
		r.check(t, "acme", 1)
		if err := r.Configure(row.bad); err == nil || err.Error() != row.want {
			t.Errorf("%s: got %v\nwant %s", row.why, err, row.want)
		}
		if got := r.admits(t, "acme", 10); got != 1 {
			t.Errorf("%s: %d admitted afterwards, want the 1 that was left", row.why, got)
		}
	}
}

func TestConfigNeedsItsParts(t *testing.T) {
	for _, o := range []limiter.Options{{Logger: slog.New(slog.DiscardHandler)}, {Store: memstore.New(memstore.Options{})}} {
		if _, err := limiter.New(o); err == nil {
			t.Errorf("made of %+v", o)
		}
	}
}

// Whose denials are carried out: the tenant's own setting, then the policy's.
func TestConfigEnforcement(t *testing.T) {
	enforce, observe := quota.Enforce, quota.Observe
	for _, row := range []struct {
		policy  quota.Enforcement
		percent float64
		tenant  *quota.Enforcement
		want    quota.Enforcement
	}{
		{quota.Enforce, -1, nil, quota.Enforce},
		{quota.Enforce, 100, nil, quota.Enforce},
		{quota.Enforce, 0, nil, quota.Observe},
		{quota.Observe, -1, nil, quota.Observe},
		{quota.Observe, 100, nil, quota.Observe},
		{quota.Enforce, -1, &observe, quota.Observe},
		{quota.Enforce, 0, &enforce, quota.Enforce},
		{quota.Observe, -1, &enforce, quota.Enforce},
	} {
		p := quota.Policy{Name: "standard", Limits: perMinute(1), Enforcement: row.policy, EnforcePercent: row.percent}
		for _, asDefault := range []bool{true, false} {
			c := limiter.Config{Policies: []quota.Policy{p}, MaxUnknown: 10}
			rule := quota.Tenant{Policy: "standard", Enforcement: row.tenant}
			if asDefault {
				c.Default = &rule
			} else {
				c.Tenants = map[string]quota.Tenant{"acme": rule}
			}
			r := memoryRig(t, c, nil)
			r.check(t, "acme", 1)
			d := r.check(t, "acme", 1)
			denied := row.want == quota.Enforce
			if d.Enforcement != row.want || d.Allowed == denied || d.WouldDeny == denied {
				t.Errorf("policy %v %v%%, tenant %v: %v, allowed %v, would deny %v", row.policy, row.percent, row.tenant, d.Enforcement, d.Allowed, d.WouldDeny)
			}
		}
	}
}

// Under observe nothing is denied; what would have been admitted is charged and
// what would have been denied is not. The limiter that enforces is the reference model.
func TestConfigObserveIsTheSameWithoutDenials(t *testing.T) {
	metricsT := t
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(1_795_198_405, 0)
		now := func() time.Time { return at }
		limits := []quota.Limit{
			{Name: "second", Units: rapid.Int64Range(1, 6).Draw(t, "L1"), Window: time.Second},
			{Name: "minute", Units: rapid.Int64Range(3, 20).Draw(t, "L2"), Window: time.Minute, Algorithm: quota.Algorithm(rapid.IntRange(0, 2).Draw(t, "algorithm"))},
		}
		strict := memoryRig(metricsT, onePolicy(quota.Policy{Limits: limits}), now)
		lenient := memoryRig(metricsT, onePolicy(quota.Policy{Limits: limits, Enforcement: quota.Observe}), now)
		most := min(limits[0].Units, limits[1].Units)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			at = at.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "pass")) * time.Millisecond)
			cost := rapid.Int64Range(1, most).Draw(t, "cost")
			a, b := strict.check(t, "acme", cost), lenient.check(t, "acme", cost)
			if !b.Allowed || b.WouldDeny == a.Allowed || a.WouldDeny {
				t.Fatalf("enforced: allowed %v; observed: allowed %v, would deny %v", a.Allowed, b.Allowed, b.WouldDeny)
			}
			for i := range a.Limits {
				x, y := a.Limits[i], b.Limits[i]
				x.Limit, y.Limit = nil, nil
				if x != y {
					t.Fatalf("limit %d: enforced %+v, observed %+v", i, x, y)
				}
			}
		}
	})
}
