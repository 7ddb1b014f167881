package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

// TestTopHidesTenants: names are shown on loopback and to callers that are known, others see
// hashes, the same for the same tenant, and why.
func TestTopHidesTenants(t *testing.T) {
	admins := access.Access{AdminTokens: known(t, access.AdminScopes, "secret")}
	for _, row := range []struct {
		address string
		access  access.Access
		hidden  bool
	}{
		{"127.0.0.1:9090", access.Access{}, false},
		{"localhost:9090", access.Access{}, false},
		{"[::1]:9090", access.Access{}, false},
		{"0.0.0.0:9090", access.Access{}, true},
		{":9090", access.Access{}, true},
		{"10.0.0.7:9090", access.Access{}, true},
		{"10.0.0.7:9090", admins, false},
	} {
		o := options(&fake{})
		o.Address, o.Settings = row.address, with(&httpapi.Settings{Access: row.access})
		o.Top = func(quota.TopQuery) (quota.TopReport, error) {
			return quota.TopReport{Rows: []quota.TopRow{
				{Tenant: "acme", Partition: "::route=5.login"}, {Tenant: "<b>", Partition: "user,ip:5.alice,1.x:"}, {Tenant: "", Partition: "::"},
			}}, nil
		}
		h := admin(t, o)
		ask := func() reply { return serve(h, request("GET", "/v1/top", "", "X-Regiond-Token: secret")) }
		got := ask()
		var v quota.TopReport
		if err := json.Unmarshal([]byte(got.body), &v); err != nil || got.status != 200 {
			t.Fatalf("%s: %d %s", row.address, got.status, got.body)
		}
		named := strings.Contains(got.body, "acme") || strings.Contains(got.body, "<b>") || strings.Contains(got.body, "alice")
		if named == row.hidden || strings.Contains(got.body, "access.admin_tokens_file") != row.hidden {
			t.Errorf("%s: %s", row.address, got.body)
		}
		if row.hidden && (v.Rows[0].Partition != "::route=5.login" || !strings.HasPrefix(v.Rows[1].Partition, "user,ip:#") || v.Rows[0].Tenant == v.Rows[1].Tenant ||
			v.Rows[2].Tenant != "" || ask().body != got.body) {
			t.Errorf("%s: %s", row.address, got.body)
		}
	}
}
