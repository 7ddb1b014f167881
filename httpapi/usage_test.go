package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

// TestUsageQueries: a page of usage is what was asked for, and each mistake has a pointer.
func TestUsageQueries(t *testing.T) {
	for _, row := range []struct{ query, want string }{ // what the limiter was asked for, or the pointers
		{"", "{  1000}"},
		{"?limit=5&policy=pro&cursor=0.77", "{0.77 pro 5}"},
		{"?limit=0", "#/limit"},
		{"?limit=10001&policy=Pro&cursor=", "#/cursor #/limit #/policy"},
		{"?limit=1&limit=2&tenant=a", "#/limit #/tenant"},
	} {
		got := ""
		o := options(&fake{})
		o.Usage = func(_ context.Context, u quota.UsageQuery) (quota.UsagePage, error) {
			got = fmt.Sprint(u)
			return quota.UsagePage{Region: "local", Rows: []quota.UsageRow{}}, nil
		}
		a := serve(data(t, o), request("GET", "/v1/usage"+row.query, ""))
		if a.status == 400 {
			var all []string
			for _, e := range a.json(t)["errors"].([]any) {
				all = append(all, e.(map[string]any)["pointer"].(string))
			}
			got = strings.Join(all, " ")
		}
		if got != row.want || a.status == 200 && a.body != "{\"region\":\"local\",\"rows\":[]}\n" {
			t.Errorf("%s: %d %q, want %q\n%s", row.query, a.status, got, row.want, a.body)
		}
	}
}

// TestUsageOfTenant: a limit says what is used and until when, and by which region to who may see other regions.
func TestUsageOfTenant(t *testing.T) {
	tokens, err := access.ParseTokens(strings.NewReader("reader "+hashOf("reader")+"\nops "+hashOf("ops")+" scopes=usage,explain"), access.DefaultScopes)
	if err != nil {
		t.Fatal(err)
	}
	o := options(&fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
		d := allowed(r)
		d.StoreUS = 1_800_000_000_000_000
		if r.Usage {
			d.Usage = [][]quota.RegionUsage{nil, {{Region: "local", Used: 1}, {Region: "other", Used: 40, Held: 2}}}
		}
		return d, nil
	}})
	o.Settings = with(&httpapi.Settings{Access: access.Access{Tokens: tokens}})
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
