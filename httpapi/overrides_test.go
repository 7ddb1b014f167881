package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

// fakeOverrides has one of every tenant but "none". It refuses edits of "bad" and "changed", and knows nothing of "lost".
type fakeOverrides struct{ edits []quota.Edit }

func stored(tenant string) *quota.Override {
	return &quota.Override{
		Tenant: tenant, Version: quota.OverrideVersion{Counter: 2, WallUS: 1_700_000_000_000_000, Region: "local"}, Policy: "gold",
		Limits: []quota.OverrideLimit{{Name: "burst", Units: 40}}, ExpiresUS: 1_900_000_000_000_000, By: "ops", Reason: "launch",
	}
}

func (f *fakeOverrides) Edit(_ context.Context, e quota.Edit) (quota.Edited, error) {
	f.edits = append(f.edits, e)
	r := quota.Edited{Before: stored(e.Override.Tenant), Regions: []quota.RegionEdit{{Region: "local", Result: quota.EditApplied}, {Region: "us", Result: quota.EditNotReached}}}
	r.Version, r.After = r.Before.Version, &e.Override
	switch e.Override.Tenant {
	case "lost":
		return quota.Edited{}, errors.New("redis is away")
	case "bad":
		return quota.Edited{}, &quota.Invalid{Fields: []quota.FieldError{{Pointer: "/policy", Detail: "is none"}}}
	case "changed":
		r.Refused = true
	case "none":
		r = quota.Edited{After: r.After, Regions: r.Regions, Ignored: []string{"daily"}}
		if !e.Override.Deleted {
			r.Version = quota.OverrideVersion{Counter: 1, WallUS: 1_700_000_000_000_000, Region: "local"}
		}
	}
	return r, nil
}

func (f *fakeOverrides) Read(_ context.Context, tenant string) (*quota.Override, error) {
	switch tenant {
	case "lost":
		return nil, errors.New("redis is away")
	case "none":
		return nil, nil //nolint:nilnil // as the contract says
	}
	return stored(tenant), nil
}

func (f *fakeOverrides) List(after string, n int) ([]*quota.Override, string, error) {
	return []*quota.Override{stored(after + "b")}, fmt.Sprint("b", n), nil
}

func (f *fakeOverrides) History(context.Context, string) (all []*quota.Override, err error) {
	for i := range quota.MaxEdits + 1 {
		o := stored("a")
		o.Version.Counter = int64(30 - i)
		all = append(all, o)
	}
	return all, nil
}

func TestOverrideCalls(t *testing.T) {
	const etag = `"2.1700000000000000.local"`
	shown := `{"tenant":"a","version":"2.1700000000000000.local","policy":"gold","limits":{"burst":40},"expires_at":"2030-03-17T17:46:40Z",` +
		`"by":"ops","reason":"launch","set_at":"2023-11-14T22:13:20Z"}`
	rows := []struct {
		call, body string
		fields     []string
		status     int
		has        string
	}{
		{"GET /v1/overrides/a", "", nil, 200, shown},
		{"GET /v1/overrides/none", "", nil, 404, "no-override"},
		{"GET /v1/overrides/a?x=1", "", nil, 400, "no parameters"},
		{"GET /v1/overrides/a%20b", "", nil, 400, "#/tenant"},
		{"GET /v1/overrides?cursor=a&limit=7", "", nil, 200, `"next_cursor":"b7"`},
		{"GET /v1/overrides?limit=1001", "", nil, 400, "between 1 and 1000"},
		{"GET /v1/overrides/a/history", "", nil, 200, `{"old":{"tenant":"a","version":"29.`},
		{"PUT /v1/overrides/none", `{"limits":{"burst":40}}`, nil, 200, `{"tenant":"none","version":"1.1700000000000000.local","regions":{"local":"applied","us":"not reached"},"ignored":["daily"]}`},
		{"PUT /v1/overrides/a", `{"limits":{"burst":40}}`, []string{"If-Match: " + etag}, 200, `"regions"`},
		{"PUT /v1/overrides/a", `{}`, []string{"If-Match: x"}, 400, "#/If-Match"},
		{"PUT /v1/overrides/a", `{}`, []string{"If-None-Match: x"}, 400, "#/If-None-Match"},
		{"PUT /v1/overrides/a", `{}`, []string{"If-None-Match: *", "If-Match: " + etag}, 400, "send one of them"},
		{"PUT /v1/overrides/changed", `{}`, []string{"If-Match: " + `"1.1.local"`}, 412, "is version 2.1700000000000000.local now"},
		{"PUT /v1/overrides/changed", `{}`, []string{"If-None-Match: *"}, 412, "wants none"},
		{"PUT /v1/overrides/bad", `{"policy":"x"}`, nil, 422, "override-refused"},
		{"PUT /v1/overrides/lost", `{"policy":"x"}`, nil, 503, "not known"},
		{"PUT /v1/overrides/a", `{"limits":{"burst":1.5}}`, nil, 400, "#/limits"},
		{"PUT /v1/overrides/a", `{"limits":{"burst":1,"burst":2}}`, nil, 400, "is duplicated"},
		{"PUT /v1/overrides/a", `{"limit":{"burst":1}}`, nil, 400, "not a member here"},
		{"PUT /v1/overrides/a", `{"expires_at":"tomorrow"}`, nil, 400, "RFC 3339"},
		{"PUT /v1/overrides/a", `{"enforcement":"perhaps"}`, nil, 400, "not one of enforce, observe"},
		{"DELETE /v1/overrides/a", "", nil, 200, `"regions"`},
		{"DELETE /v1/overrides/none", "", nil, 404, "no-override"},
	}
	for _, row := range rows {
		h := admin(t, options(&fake{}))
		method, path, _ := strings.Cut(row.call, " ")
		got := serve(h, request(method, path, row.body, append(row.fields, "X-Requested-With: test")...))
		if got.status != row.status || !strings.Contains(got.body, row.has) {
			t.Errorf("%s %s: %d %s, want %d with %s", row.call, row.body, got.status, got.body, row.status, row.has)
		}
		if row.status == 200 && strings.HasSuffix(path, "/a") && got.field("Etag") != etag {
			t.Errorf("%s: ETag %s", row.call, got.field("Etag"))
		}
		if n := strings.Count(got.body, `"new":`); strings.HasSuffix(path, "history") && n != quota.MaxEdits {
			t.Errorf("%d edits", n)
		}
	}
}

// The line of the audit has who, what was and what is; and a caller edits ten times a second.
func TestOverrideEdits(t *testing.T) {
	tokens, err := access.ParseTokens(strings.NewReader("ops "+hashOf("ops")+"\nsales "+hashOf("sales")+" scopes=limits"), access.AdminScopes)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f := &fakeOverrides{}
	o := options(&fake{})
	o.Logger, o.Overrides = slog.New(slog.NewTextHandler(&log, nil)), f
	o.Settings = with(&httpapi.Settings{Access: access.Access{AdminTokens: tokens}})
	h := admin(t, o)
	put := func(token string) reply {
		return serve(h, request("PUT", "/v1/overrides/a", `{"limits":{"burst":60},"reason":"more"}`, "X-Regiond-Token: "+token))
	}
	for range 10 {
		if got := put("ops"); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if want := `msg="override changed" tenant=a version=2.1700000000000000.local old="policy gold, burst 40" new="burst 60" reason=more`; !strings.Contains(log.String(), want) ||
		!strings.Contains(log.String(), "caller=ops") {
		t.Errorf("the log has no %s:\n%s", want, log.String())
	}
	if f.edits[0].Override.By != "ops" {
		t.Errorf("by %q", f.edits[0].Override.By)
	}
	if got := put("ops"); got.status != 429 || got.field("Retry-After") != "1" || len(f.edits) != 10 {
		t.Errorf("the 11th: %d %s, %d edits", got.status, got.body, len(f.edits))
	}
	if got := put("sales"); got.status != 200 {
		t.Errorf("of another caller: %d %s", got.status, got.body)
	}
}
