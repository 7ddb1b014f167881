package daemon

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/ports"
	"github.com/regiond/regiond/test/redisserver"
)

// explainTown is a region on a real Redis with a policy of each kind of limit. Nothing frees while a test looks at it.
const explainTown = `regions:
  - name: town
    http: 127.0.0.1:0
    admin: 127.0.0.1:0
    gossip: {bind: "GOSSIP", advertise: "GOSSIP"}
    redis: {addrs: ["REDIS"]}
policies:
  - name: standard
    limits: [{name: all, units: 9, per: 2h}, {name: user, units: 2, per: 1h, by: [user]}]
  - name: smooth
    limits: [{name: rate, units: 6, per: 6h, burst: 2, algorithm: gcra}]
  - name: world
    limits: [{name: hourly, units: 5, per: 1h, scope: global}]
  - name: bounded
    limits: [{name: hourly, units: 5, per: 1h, scope: global, max_overshoot: 20%}]
tenants:
  acme: {policy: standard}
`

// TestExplainServed: on both listeners what is explained is what the next check gets, of each kind of limit, before and
// after it is used up, after a reset and without Redis; nothing is spent by it.
func TestExplainServed(t *testing.T) {
	redis := redisserver.Start(t, redisserver.Options{})
	gossip := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Take(t, 1))) // NATS takes the next
	p := start(t, strings.NewReplacer("REDIS", redis.Addr(), "GOSSIP", gossip).Replace(explainTown))
	explained := func(policy string, says ...string) (allowed bool) {
		t.Helper()
		for _, listener := range []client{p.client, p.admin, p.client} {
			a := listener.get(t, "/v1/explain/acme?dim.user=42&policy="+policy)
			a.is(t, http.StatusOK)
			var v struct {
				Explain quota.Explanation `json:"explain"`
			}
			if err := json.Unmarshal([]byte(a.body), &v); err != nil {
				t.Fatal(err)
			}
			for _, line := range says {
				if !slices.Contains(v.Explain.Sentences, line) {
					t.Errorf("%s: it does not say %q but %q", policy, line, v.Explain.Sentences)
				}
			}
			allowed = a.decision(t).Allowed
		}
		return allowed
	}
	check := func(policy string) bool {
		t.Helper()
		return p.ask(t, http.MethodPost, "/v1/check", fmt.Sprintf(`{"tenant":"acme","policy":%q,"dimensions":{"user":"42"}}`, policy)).status == http.StatusOK
	}
	for _, row := range []struct {
		policy, limit string
		used          string // when nothing more is admitted
		admits        int
	}{
		{"standard", "Limit user is 2 units per 1h, counted in this region alone, for each user.", "Region town used all of the 2 units that it may hold of it now.", 2},
		{"smooth", "Limit rate is 6 units per 6h, at most 2 at once, counted in this region alone.", "Region town used all of the 2 units that it may hold of it now.", 2},
		{"world", "Limit hourly is 5 units per 1h, counted over all regions.", "Region town used all of the 5 units that it may hold of it now.", 5},
		{"bounded", "All regions together hold at most 6 units of it in any window, whatever happens (max_overshoot).", "Region town used all of the 5 units that it may hold of it now.", 5},
	} {
		checks := 0
		for explained(row.policy, row.limit) {
			if !check(row.policy) {
				t.Fatalf("%s: check %d was explained as allowed, and is denied", row.policy, checks)
			}
			checks++
		}
		if check(row.policy) || checks != row.admits {
			t.Errorf("%s: explained as denied after %d checks, want %d; or the next one passes", row.policy, checks, row.admits)
		}
		explained(row.policy, row.used)
	}
	p.admin.ask(t, http.MethodDelete, "/v1/usage/acme", "").is(t, http.StatusNoContent)
	if !explained("standard", "Region town used nothing of the 2 units that it may hold of it now.") {
		t.Error("after a reset it is explained as denied")
	}
	redis.Kill()
	capture.Eventually(t, func() error {
		if a := p.get(t, "/v1/explain/acme?dim.user=42&policy=standard"); !strings.Contains(a.body, "this process does, in its memory and within its part of each limit.") {
			return fmt.Errorf("without Redis: %s", a.body)
		}
		return nil
	})
}
