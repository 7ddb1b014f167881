package daemon

import (
	"fmt"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/regiond/regiond/test/capture"
)

// TestPolicyFromOfAProgram: the values of policy_from are those of the file in force, and a value without a policy leaves the
// tenant its own.
func TestPolicyFromOfAProgram(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	policy := func(plan string) string {
		t.Helper()
		return p.ask(t, "GET", "/v1/authz/", "", "X-Tenant: acme", "X-Plan: "+plan).header.Get("Ratelimit-Policy")
	}
	for plan, want := range map[string]string{"gold": `"opening.hourly";q=5;w=3600`, "opening": `"standard.hourly";q=5;w=3600`} {
		if got := policy(plan); got != want {
			t.Errorf("plan %s: %s, want %s", plan, got, want)
		}
	}
	if n := p.metrics(t).series["regiond_policy_from_unknown_total"]; n != 1 {
		t.Errorf("%v unknown values were counted, want 1", n)
	}
	p.rewrite(t, "policies: {gold: opening}", "policies: [closing]")
	capture.Eventually(t, func() error {
		if got := policy("closing"); got != `"closing.hourly";q=5;w=3600` {
			return fmt.Errorf("plan closing: %s", got)
		}
		return nil
	})
}

// TestNearOfAProgram: near of the file makes a line of the log and a metric.
func TestNearOfAProgram(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	for range 5 {
		p.check(t, "openly").is(t, 200)
	}
	const series = `{limit="hourly",policy="opening"}`
	if m := p.metrics(t).series; m["regiond_near_total"+series] != 1 || m["regiond_limit_units"+series] != 5 {
		t.Errorf("near %v, units %v; want 1 and 5", m["regiond_near_total"+series], m["regiond_limit_units"+series])
	}
	capture.Eventually(t, func() error {
		if n := strings.Count(p.log.String(), `"a tenant is near a limit"`); n != 1 {
			return fmt.Errorf("%d lines of the log", n)
		}
		return nil
	})
}

// TestPolicyFromOfADomain: a descriptor's plan is the policy, an override wins over it at once, and a reload changes what plans mean. To
// override a limit of the domain's own file is a mistake that says so.
func TestPolicyFromOfADomain(t *testing.T) {
	t.Parallel()
	from := func(policies string) string { return ", policy_from: {descriptor: plan, policies: " + policies + "}" }
	p := start(t, withDomains(t, t.TempDir(), inMemory(), map[string]string{"edge": from("{gold: opening}")}), "--grpc", "127.0.0.1:0")
	g := p.gateway(t, nil)
	inForce := func(plan string) string {
		t.Helper()
		a, err := g.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "acme"}, {Key: "plan", Value: plan}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(a.GetDynamicMetadata().GetFields()["policy"].GetStringValue(), " ", a.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit())
	}
	if gold, none := inForce("gold"), inForce("closing"); gold != "opening 5" || none != "standard 5" {
		t.Errorf("gold: %s, no value of policy_from: %s", gold, none)
	}
	p.admin.ask(t, "PUT", "/v1/overrides/acme", `{"limits": {"hourly": 7}}`).is(t, 200)
	if gold := inForce("gold"); gold != "opening 7" {
		t.Errorf("with an override: %s", gold)
	}
	p.admin.ask(t, "PUT", "/v1/overrides/acme", `{"policy": "closing"}`).is(t, 200)
	if gold := inForce("gold"); gold != "closing 5" {
		t.Errorf("with an override of the policy: %s", gold)
	}
	mistake := p.admin.ask(t, "PUT", "/v1/overrides/acme", `{"limits": {"user": 7}}`)
	if mistake.is(t, 422); !strings.Contains(mistake.body, `"#/limits/user"`) || !strings.Contains(mistake.body, "policy_from") {
		t.Errorf("an override of the file's limit: %s", mistake.body)
	}
	p.admin.ask(t, "DELETE", "/v1/overrides/acme", "").is(t, 200)
	p.rewrite(t, "{gold: opening}", "[closing]")
	capture.Eventually(t, func() error {
		if closing, gold := inForce("closing"), inForce("gold"); closing != "closing 5" || gold != "standard 5" {
			return fmt.Errorf("closing: %s, gold: %s", closing, gold)
		}
		return nil
	})
}
