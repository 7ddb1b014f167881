package httpapi_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

// TestExplain: both listeners look, spend nothing, and say why, to whom may know.
func TestExplain(t *testing.T) {
	const told = "Region eu lets tenant acme spend 1 unit."
	tokens, err := access.ParseTokens(strings.NewReader("why "+hashOf("why")+" scopes=explain\nuse "+hashOf("use")+"\n"+
		"held "+hashOf("held")+" scopes=explain tenants=globex"), access.DefaultScopes)
	if err != nil {
		t.Fatal(err)
	}
	admins, err := access.ParseTokens(strings.NewReader("ops "+hashOf("ops")), access.AdminScopes)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		admin   bool
		address string
		access  access.Access
		token   string
		target  string
		status  int
		says    string // in a refusal
	}{
		{false, "127.0.0.1:8080", access.Access{}, "", "/v1/explain/acme", 200, ""},
		{false, "0.0.0.0:8080", access.Access{Tokens: tokens}, "why", "/v1/explain/acme?policy=gold&cost=3&dim.user=42", 200, ""},
		{false, "0.0.0.0:8080", access.Access{Tokens: tokens}, "use", "/v1/explain/acme", 403, "the caller needs scope explain"},
		{false, "0.0.0.0:8080", access.Access{Tokens: tokens}, "held", "/v1/explain/acme", 403, "the caller is held to other tenants"},
		{false, "127.0.0.1:8080", access.Access{}, "", "/v1/explain/acme?window=1m", 400, "there are: policy, cost, explain, dim.<name>"},
		{false, "127.0.0.1:8080", access.Access{}, "", "/v1/explain/a%20b", 400, "must be printable ASCII"},
		{true, "127.0.0.1:9090", access.Access{}, "", "/v1/explain/acme", 200, ""},
		{true, "0.0.0.0:9090", access.Access{AdminTokens: admins}, "ops", "/v1/explain/acme", 200, ""},
		{true, "0.0.0.0:9090", access.Access{AdminTokens: admins}, "", "/v1/explain/acme", 401, ""},
		{true, "0.0.0.0:9090", access.Access{}, "", "/v1/explain/acme", 403, "Tenants are shown as hashes"},
	} {
		f := &fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
			d := allowed(r)
			if r.Explain {
				d.Explanation = &quota.Explanation{Region: "eu", Sentences: []string{told}}
			}
			return d, nil
		}}
		o := options(f)
		o.Address, o.Settings = row.address, with(&httpapi.Settings{Access: row.access})
		var header []string
		if row.token != "" {
			header = []string{"Authorization: Bearer " + row.token}
		}
		h := data
		if row.admin {
			h = admin
		}
		got := serve(h(t, o), request("GET", row.target, "", header...))
		if got.status != row.status || !strings.Contains(got.body, row.says) {
			t.Errorf("%s %+v: %d %s", row.target, row.access, got.status, got.body)
			continue
		}
		if row.status != 200 {
			if f.calls() > 0 {
				t.Errorf("%s: the limiter was asked for one that may not know", row.target)
			}
			continue
		}
		var v struct {
			Explain quota.Explanation `json:"explain"`
		}
		if err := json.Unmarshal([]byte(got.body), &v); err != nil || len(v.Explain.Sentences) != 1 || v.Explain.Sentences[0] != told {
			t.Errorf("%s: %v %s", row.target, err, got.body)
		}
		want := quota.Request{Tenant: "acme", Cost: 1, Explain: true}
		if strings.Contains(row.target, "policy") {
			want.Policy, want.Cost, want.Dimensions = "gold", 3, quota.Dimensions{{Name: "user", Value: "42"}}
		}
		if last := f.last(t); f.verbs[0] != "peek" || last.Policy != want.Policy || last.Cost != want.Cost || len(last.Dimensions) != len(want.Dimensions) || !last.Explain {
			t.Errorf("%s: %s of %+v, want a peek of %+v", row.target, f.verbs[0], last, want)
		}
	}
}
