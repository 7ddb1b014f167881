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

// TestTenantPolicy: an override decides which policy is in force, else what the gateway has verified, else a policy that is named,
// else what the configuration says. A value that no policy has says nothing; it is counted, and logged once.
func TestTenantPolicy(t *testing.T) {
	t.Parallel()
	var log capture.Log
	o := &overlay{all: map[string]*quota.Override{}}
	minute := func(name string, units int64) quota.Policy {
		return quota.Policy{Name: name, EnforcePercent: -1, Limits: []quota.Limit{{Name: "all", Units: units, Window: time.Minute}}}
	}
	config := limiter.Config{
		Region: "eu", MaxUnknown: 100, MaxValues: 100,
		Policies: []quota.Policy{minute("free", 10), minute("pro", 20), minute("large", 30)},
		Tenants:  map[string]quota.Tenant{"acme": {Policy: "free"}, "raised": {Policy: "free"}, "moved": {Policy: "free"}},
	}
	r := newRig(t, limiter.Options{Overrides: o, Logger: slog.New(slog.NewTextHandler(&log, nil)), Config: config})
	o.set("raised", "", quota.OverrideLimit{Name: "all", Units: 99})
	o.set("moved", "large")
	for _, row := range []struct {
		values                map[string]string // by value; nil: names of policies
		tenant, policy, value string
		want                  string
		units                 int64
	}{
		{nil, "acme", "", "", "free", 10},
		{nil, "acme", "", "pro", "pro", 20},
		{nil, "acme", "large", "pro", "pro", 20},
		{nil, "acme", "", "odd", "free", 10},
		{nil, "acme", "large", "odd", "large", 30},
		{nil, "raised", "", "pro", "pro", 99}, // its units are those of the policy in force
		{nil, "moved", "", "pro", "large", 30},
		{nil, "moved", "pro", "", "pro", 20}, // a caller that names a policy
		{map[string]string{"gold": "large"}, "acme", "", "gold", "large", 30},
		{map[string]string{"gold": "large"}, "acme", "", "pro", "free", 10}, // no value but those
		{map[string]string{"gold": "gone"}, "acme", "", "gold", "free", 10},
	} {
		d := ask(t, r, quota.Request{Tenant: row.tenant, Policy: row.policy, TenantPolicy: row.value, PolicyValues: row.values})
		if d.Policy != row.want || d.Limits[0].Limit.Units != row.units {
			t.Errorf("%+v: policy %s with %d units", row, d.Policy, d.Limits[0].Limit.Units)
		}
	}
	// A policy that is the tenant's by default is what the configuration says of it; another one is a request's own.
	for _, row := range []struct {
		tenant, policy, value, want string
		units                       int64
	}{
		{"acme", "large", "", "large", 30},
		{"acme", "large", "pro", "pro", 20},
		{"acme", "large", "odd", "large", 30},
		{"moved", "pro", "", "large", 30},
		{"moved", "pro", "odd", "large", 30},
		{"raised", "large", "", "large", 99},
	} {
		d := ask(t, r, quota.Request{Tenant: row.tenant, Policy: row.policy, TenantPolicy: row.value, PolicyDefault: true})
		if d.Policy != row.want || d.Limits[0].Limit.Units != row.units {
			t.Errorf("by default %+v: policy %s with %d units", row, d.Policy, d.Limits[0].Limit.Units)
		}
	}
	if _, err := r.Check(t.Context(), quota.Request{Tenant: "acme", Policy: "gone", PolicyDefault: true, Cost: 1}); err == nil {
		t.Error("a default that is no policy is one")
	}
	if n := r.count(t, "regiond.policy_from.unknown"); n != 6 {
		t.Errorf("%d decisions were counted without a policy of that value, want 6", n)
	}
	before := strings.Count(log.String(), "no policy has this value")
	for range 3 {
		ask(t, r, quota.Request{Tenant: "acme", TenantPolicy: "often"})
	}
	if n := strings.Count(log.String(), "no policy has this value") - before; n != 1 || !strings.Contains(log.String(), "value=often tenant=acme policy=free") {
		t.Errorf("an unknown value was logged %d times, want once\n%s", n, log.String())
	}
	if _, err := r.Check(t.Context(), quota.Request{Tenant: "stranger", TenantPolicy: "large", Cost: 1}); err == nil {
		t.Error("a tenant that nobody serves is served, since it has a policy")
	}
}
