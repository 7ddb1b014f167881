package daemon

import (
	"strings"
	"testing"

	"github.com/regiond/regiond/test/redisserver"
)

// TestUsageOfAProgram: what tenants have used is listed from the region's Redis, and of one tenant with when it ends.
func TestUsageOfAProgram(t *testing.T) {
	t.Parallel()
	p := start(t, onRedis(redisserver.Start(t, redisserver.Options{}).Addr()))
	for _, tenant := range []string{"acme", "acme", "openly"} {
		p.check(t, tenant).is(t, 200)
	}
	for path, want := range map[string][]string{
		"/v1/usage": {
			`{"region":"town","rows":[`, `{"tenant":"acme","policy":"standard","limit":"hourly","scope":"region","units":5,"window_ms":3600000,"used":2,"held":0,"ends_at":"`,
			`{"tenant":"openly","policy":"opening","limit":"hourly",`,
		},
		"/v1/usage?policy=closing": {`{"region":"town","rows":[]}`},
		"/v1/usage/acme":           {`"used":2,"ends_at":"`},
	} {
		a := p.get(t, path)
		a.is(t, 200)
		for _, text := range want {
			if !strings.Contains(a.body, text) {
				t.Errorf("%s: no %s in\n%s", path, text, a.body)
			}
		}
	}
	if a := p.get(t, "/v1/usage?cursor=9.1"); a.status != 400 || !strings.Contains(a.body, `"pointer":"#/cursor"`) {
		t.Errorf("an odd cursor: %d %s", a.status, a.body)
	}
}
