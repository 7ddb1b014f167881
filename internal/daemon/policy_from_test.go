package daemon

import (
	"fmt"
	"testing"

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
