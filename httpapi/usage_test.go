package httpapi_test

import (
	"context"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

// TestUsageOfTenant: a limit says what is used and until when, and by which region to who may see other regions.
func TestUsageOfTenant(t *testing.T) {
	o := options(&fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
		d := allowed(r)
		d.StoreUS = 1_800_000_000_000_000
		if r.Usage {
			d.Usage = [][]quota.RegionUsage{nil, {{Region: "local", Used: 1}, {Region: "other", Used: 40, Held: 2}}}
		}
		return d, nil
	}})
	o.Settings = with(&httpapi.Settings{Access: access.Access{Tokens: known(t, access.DefaultScopes, "reader", "ops scopes=usage,explain")}})
	for token, regions := range map[string]bool{"reader": false, "ops": true} {
		a := serve(data(t, o), request("GET", "/v1/usage/acme", "", "X-Regiond-Token: "+token))
		if a.status != 200 || !strings.Contains(a.body, `"used":1,"ends_at":"2027-01-15T08:00:59.999001Z"`) ||
			strings.Contains(a.body, `"regions":[{"region":"local","used":1,"held":0},{"region":"other","used":40,"held":2}]`) != regions {
			t.Errorf("%s: %d %s", token, a.status, a.body)
		}
	}
	if a := serve(data(t, o), request("POST", "/v1/check", `{"tenant":"acme"}`, "X-Regiond-Token: reader")); strings.Contains(a.body, `"used"`) {
		t.Errorf("a check says what is used: %s", a.body)
	}
}
