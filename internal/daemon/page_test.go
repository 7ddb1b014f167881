package daemon

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// TestPageAfterReload: the page's policies are those in force, and their figures go on: a policy that a reload removes
// is no longer there, one with another limit is.
func TestPageAfterReload(t *testing.T) {
	p := start(t, withDomains(t, t.TempDir(), inMemory(), map[string]string{"edge": ""}), "--grpc", "127.0.0.1:0")
	if _, err := p.gateway(t, nil).ask(t, "edge", "u", ""); err != nil {
		t.Fatal(err)
	}
	p.check(t, "acme").is(t, http.StatusOK)
	p.check(t, "closely").is(t, http.StatusOK)
	shown := func() (all []string) {
		for _, policy := range p.daemon.sample().Policies {
			all = append(all, fmt.Sprint(policy.Name, " ", policy.Allowed))
		}
		return all
	}
	if got := shown(); !slices.Equal(got, []string{"standard 1", "opening 0", "closing 1", "rls-edge 1"}) {
		t.Errorf("the page has %q", got)
	}
	p.rewrite(t, "closing", "shutting")
	p.rewrite(t, "units: 5,", "units: 6,")
	p.inForce(t, 6)
	p.check(t, "closely").is(t, http.StatusOK)
	if got := shown(); !slices.Equal(got, []string{"standard 1", "opening 0", "shutting 1", "rls-edge 1"}) {
		t.Errorf("after a reload the page has %q", got)
	}
}
