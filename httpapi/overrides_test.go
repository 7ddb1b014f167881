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
		r = quota.Edited{After: r.After, Regions: r.Regions, Ignored: []string{"daily"}, Refused: e.IfMatch != ""}
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

// The line of the audit has who, what was and what is; and a caller edits ten times a second.
func TestOverrideEdits(t *testing.T) {
	var log bytes.Buffer
	f := &fakeOverrides{}
	o := options(&fake{})
	o.Logger, o.Overrides = slog.New(slog.NewTextHandler(&log, nil)), f
	o.Settings = with(&httpapi.Settings{Access: access.Access{AdminTokens: known(t, access.AdminScopes, "ops", "sales scopes=limits")}})
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
