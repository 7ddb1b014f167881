package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/input"
	"github.com/regiond/regiond/quota"
)

// ranked is the admin API of a listener at address, and the last query that its ranking was asked.
func ranked(t testing.TB, address string, a access.Access) (ask func(target string, header ...string) reply, last *quota.TopQuery) {
	t.Helper()
	last = &quota.TopQuery{}
	o := options(&fake{})
	o.Address, o.Settings = address, with(&httpapi.Settings{Access: a})
	o.Top = func(q quota.TopQuery) (quota.TopReport, error) {
		*last = q
		if q.Policy == "none" {
			return quota.TopReport{}, &quota.Invalid{Fields: []quota.FieldError{{Pointer: "/policy", Detail: `"none" is not a policy`}}}
		}
		return quota.TopReport{By: q.By, Region: "eu", Regions: []string{"eu"}, Total: 9, Rows: []quota.TopRow{
			{Tenant: "acme", Policy: "standard", Limit: "minute", Partition: "::route=5.login", AtLeast: 5, AtMost: 7},
			{Tenant: "<b>", Policy: "standard", Limit: "per-user", Partition: "user,ip:5.alice,1.x:", AtLeast: 1, AtMost: 1},
			{Tenant: "", Policy: "standard", Limit: "minute", Partition: "::", AtLeast: 1, AtMost: 1},
		}}, nil
	}
	h := admin(t, o)
	return func(target string, header ...string) reply { return serve(h, request("GET", target, "", header...)) }, last
}

func TestTopQuery(t *testing.T) {
	ask, last := ranked(t, "127.0.0.1:9090", access.Access{})
	for _, row := range []struct {
		query string
		want  quota.TopQuery
		wrong string // in the answer
	}{
		{"", quota.TopQuery{Window: time.Minute, Rows: input.DefaultTopRows}, ""},
		{"by=used&policy=gold&window=1h&scope=global&limit=1000", quota.TopQuery{By: quota.TopUsed, Policy: "gold", Window: time.Hour, Scope: quota.ScopeGlobal, Rows: 1000}, ""},
		{"by=denied&window=60s&scope=region&limit=1", quota.TopQuery{Window: time.Minute, Rows: 1}, ""},
		{"by=cost", quota.TopQuery{}, `"#/by","detail":"\"cost\" is not one of denied, used`},
		{"scope=eu", quota.TopQuery{}, `"#/scope","detail":"\"eu\" is not one of region, global`},
		{"window=5m", quota.TopQuery{}, `must be 1m or 1h, is 5m`},
		{"window=1", quota.TopQuery{}, "must be 1m or 1h"},
		{"limit=0", quota.TopQuery{}, "must be 1 to 1000 rows"},
		{"limit=1001", quota.TopQuery{}, "must be 1 to 1000 rows"},
		{"policy=none", quota.TopQuery{}, `\"none\" is not a policy`},
		{"policy=", quota.TopQuery{}, "#/policy"},
		{"by=used&by=used", quota.TopQuery{}, "is duplicated"},
		{"tenant=acme", quota.TopQuery{}, "there are: by, policy, window, scope, limit"},
		{"by=%", quota.TopQuery{}, "not well-formed"},
	} {
		got := ask("/v1/top?" + row.query)
		if row.wrong != "" {
			if got.status != 400 || !strings.Contains(got.body, row.wrong) {
				t.Errorf("%s: %d %s", row.query, got.status, got.body)
			}
		} else if got.status != 200 || *last != row.want {
			t.Errorf("%s: %d, asked for %+v", row.query, got.status, *last)
		}
	}
}

// TestTopHidesTenants: names are shown on loopback and to callers that are known, others see
// hashes, the same for the same tenant, and why.
func TestTopHidesTenants(t *testing.T) {
	tokens, err := access.ParseTokens(strings.NewReader("ops "+hashOf("secret")+"\nheld "+hashOf("held")+" tenants=acme"), access.AdminScopes)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		address string
		access  access.Access
		token   string
		status  int
		hidden  bool
	}{
		{"127.0.0.1:9090", access.Access{}, "", 200, false},
		{"localhost:9090", access.Access{}, "", 200, false},
		{"[::1]:9090", access.Access{}, "", 200, false},
		{"0.0.0.0:9090", access.Access{}, "", 200, true},
		{":9090", access.Access{}, "", 200, true},
		{"10.0.0.7:9090", access.Access{}, "", 200, true},
		{"10.0.0.7:9090", access.Access{AdminTokens: tokens}, "secret", 200, false},
		{"10.0.0.7:9090", access.Access{AdminTokens: tokens}, "", 401, false},
		{"10.0.0.7:9090", access.Access{AdminTokens: tokens}, "held", 403, false},
		{"10.0.0.7:9090", access.Access{AdminClientNames: []string{"ops"}}, "", 401, false},
	} {
		ask, _ := ranked(t, row.address, row.access)
		var header []string
		if row.token != "" {
			header = []string{"Authorization: Bearer " + row.token}
		}
		got := ask("/v1/top", header...)
		if got.status != row.status {
			t.Fatalf("%+v: %d %s", row, got.status, got.body)
		}
		if row.status != 200 {
			continue
		}
		var v quota.TopReport
		if err := json.Unmarshal([]byte(got.body), &v); err != nil {
			t.Fatal(err)
		}
		named := strings.Contains(got.body, "acme") || strings.Contains(got.body, "<b>") || strings.Contains(got.body, "alice")
		if named == row.hidden || (len(v.Notes) == 1) != row.hidden {
			t.Errorf("%s: %s", row.address, got.body)
		}
		if !row.hidden {
			continue
		}
		if !strings.Contains(v.Notes[0], "access.admin_tokens_file") {
			t.Errorf("it does not say what to do: %s", v.Notes)
		}
		if v.Rows[0].Partition != "::route=5.login" || !strings.HasPrefix(v.Rows[1].Partition, "user,ip:#") || v.Rows[0].Tenant == v.Rows[1].Tenant || v.Rows[2].Tenant != "" {
			t.Errorf("rows %+v", v.Rows)
		}
		if again := ask("/v1/top"); again.body != got.body {
			t.Error("the hashes change from call to call")
		}
	}
}
