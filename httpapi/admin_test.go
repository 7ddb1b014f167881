package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

func TestAdminPages(t *testing.T) {
	o := options(&fake{})
	notReady := o
	notReady.Ready = func() (bool, []string) { return false, []string{"draining"} }
	if got := serve(admin(t, notReady), request("GET", "/readyz", "")); got.status != 503 || got.body != `{"ready":false,"reasons":["draining"]}`+"\n" {
		t.Errorf("not ready: %d %s", got.status, got.body)
	}
	rows := []struct {
		method, target string
		status         int
		body           string
	}{
		{"GET", "/healthz", 200, `{"status":"ok"}` + "\n"},
		{"GET", "/readyz", 200, `{"ready":true,"reasons":[]}` + "\n"},
		{"GET", "/metrics", 200, "figures 1\n"},
		{"GET", "/v1/regions", 200, `{"region":"local"}` + "\n"},
		{"POST", "/healthz", 405, ""},
		{"GET", "/v1/usage/acme", 405, ""},
		{"GET", "/v1/check", 404, ""},
		{"GET", "/", 200, "page\n"},
		{"GET", "/page/style.css", 200, "page\n"},
		{"GET", "/v1/events", 200, "event: state\ndata: {}\n\n"},
		{"POST", "/demo/cut/eu-west", 404, ""},
		{"GET", "/debug/pprof/", 200, ""},
		{"GET", "/debug/pprof/cmdline", 200, ""},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, ""},
		{"GET", "/debug/pprof/symbol", 200, ""},
		{"POST", "/debug/pprof/symbol", 200, ""},
		{"GET", "/debug/pprof/nothing", 404, ""},
	}
	for _, row := range rows {
		got := serve(admin(t, o), request(row.method, row.target, ""))
		if got.status != row.status || row.body != "" && got.body != row.body || got.field("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %d %v %q", row.method, row.target, got.status, got.header, got.body)
		}
	}
	o.Page = http.FileServerFS(fstest.MapFS{})
	if got := serve(admin(t, o), request("GET", "/page/nothing", "")); got.status != 404 || got.field("Cache-Control") != "no-store" {
		t.Errorf("a file that is not there: %d %v", got.status, got.header)
	}
}

func TestReset(t *testing.T) {
	rows := []struct {
		target string
		err    error
		status int
		tenant string
	}{
		{"/v1/usage/acme", nil, 204, "acme"},
		{"/v1/usage/a%2Fb", nil, 204, "a/b"},
		{"/v1/usage/acme", errors.New("no store"), 503, "acme"},
		{"/v1/usage/acme", &quota.Invalid{Fields: []quota.FieldError{{Pointer: "/tenant", Detail: "is not known"}}}, 400, "acme"},
		{"/v1/usage/a%20b", nil, 400, ""},
		{"/v1/usage/acme?policy=gold", nil, 400, ""},
		{"/v1/usage/", nil, 404, ""},
		{"/v1/usage/a/b", nil, 404, ""},
	}
	for _, row := range rows {
		f := &fake{reset: func(context.Context, string) error { return row.err }}
		got := serve(admin(t, options(f)), request("DELETE", row.target, ""))
		if got.status != row.status || got.status == 204 && got.body != "" {
			t.Errorf("%s: %d %s", row.target, got.status, got.body)
		}
		if tenant := strings.TrimSuffix(checked(f), " cost=0"); tenant != row.tenant {
			t.Errorf("%s: reset %q", row.target, tenant)
		}
	}
}

// A reset of all regions reaches neither this region's limiter nor another tenant, and keeps to
// scopes and tenants as that of one region does.
func TestResetEverywhere(t *testing.T) {
	admins, err := access.ParseTokens(strings.NewReader("all "+hashOf("all")+"\nsome "+hashOf("some")+" tenants=acme\nno "+hashOf("no")+" scopes=usage"), access.AdminScopes)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		target, token string
		err           error
		status        int
		tenant        string
	}{
		{"/v1/usage/acme?everywhere=1", "all", nil, 200, "acme"},
		{"/v1/usage/a%2Fb?everywhere=1", "all", nil, 200, "a/b"},
		{"/v1/usage/acme?everywhere=1", "some", nil, 200, "acme"},
		{"/v1/usage/globex?everywhere=1", "some", nil, 403, ""},
		{"/v1/usage/acme?everywhere=1", "no", nil, 403, ""},
		{"/v1/usage/acme?everywhere=1", "other", nil, 401, ""},
		{"/v1/usage/acme?everywhere=1", "all", errors.New("no store"), 503, "acme"},
		{"/v1/usage/a%20b?everywhere=1", "all", nil, 400, ""},
		{"/v1/usage/acme?everywhere=0", "all", nil, 400, ""},
		{"/v1/usage/acme?everywhere=", "all", nil, 400, ""},
		{"/v1/usage/acme?everywhere=1&everywhere=1", "all", nil, 400, ""},
		{"/v1/usage/acme?everywhere=1&policy=gold", "all", nil, 400, ""},
		{"/v1/usage/acme?Everywhere=1", "all", nil, 400, ""},
	} {
		f, tenant := &fake{}, ""
		o := options(f)
		o.Settings = with(&httpapi.Settings{Access: access.Access{AdminTokens: admins}})
		o.ResetEverywhere = func(_ context.Context, name string) ([]quota.RegionReset, error) {
			tenant = name
			return []quota.RegionReset{{Region: "eu", Result: quota.ResetCleared, BurntMS: 1500}, {Region: "us", Result: quota.ResetUnreached}}, row.err
		}
		got := serve(admin(t, o), request("DELETE", row.target, "", "Authorization: Bearer "+row.token))
		if got.status != row.status || tenant != row.tenant || f.calls() > 0 {
			t.Errorf("%s by %s: %d %s, tenant %q, %d calls", row.target, row.token, got.status, got.body, tenant, f.calls())
		}
		if want := `{"regions":[{"region":"eu","result":"cleared","burnt_ms":1500},{"region":"us","result":"unreached"}]}` + "\n"; got.status == 200 && got.body != want {
			t.Errorf("%s: %s", row.target, got.body)
		}
	}
	alone := serve(admin(t, options(&fake{})), request("DELETE", "/v1/usage/acme?everywhere=1", ""))
	if alone.status != 409 || !strings.Contains(alone.body, "urn:regiond:problem:no-other-region") {
		t.Errorf("without other regions: %d %s", alone.status, alone.body)
	}
}

// A reset may take longer than an answer, and reports when it did not finish.
func TestResetHasItsOwnDeadline(t *testing.T) {
	for takes, status := range map[time.Duration]int{
		httpapi.ResetTimeout - time.Millisecond: 204,
		httpapi.ResetTimeout + time.Millisecond: 503,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{reset: func(ctx context.Context, _ string) error {
				select {
				case <-time.After(takes):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}}
			start := time.Now()
			got := serve(admin(t, options(f)), request("DELETE", "/v1/usage/acme", ""))
			if took := time.Since(start); got.status != status || took != min(takes, httpapi.ResetTimeout) || took >= httpapi.WriteTimeout {
				t.Errorf("%d after %v: %s", got.status, took, got.body)
			}
			if got.status == 503 && (!strings.Contains(got.body, "in part or not at all") || got.field("Retry-After") == "") {
				t.Errorf("%v %s", got.header, got.body)
			}
		})
	}
}

func TestOptionsAreValidated(t *testing.T) {
	rows := []struct {
		change func(*httpapi.Options)
		data   bool // whether NewData refuses too
	}{
		{func(o *httpapi.Options) { o.Limiter = nil }, true},
		{func(o *httpapi.Options) { o.Logger = nil }, true},
		{func(o *httpapi.Options) { o.Meter = nil }, true},
		{func(o *httpapi.Options) { o.Deadline = -1 }, true},
		{func(o *httpapi.Options) { o.MaxInFlight = -1 }, true},
		{func(o *httpapi.Options) { o.Tracing = &httpapi.Tracing{} }, true},
		{func(o *httpapi.Options) { o.Ready = nil }, false},
		{func(o *httpapi.Options) { o.Regions = nil }, false},
		{func(o *httpapi.Options) { o.Top = nil }, false},
		{func(o *httpapi.Options) { o.Metrics = nil }, false},
	}
	for i, row := range rows {
		o := options(&fake{})
		row.change(&o)
		_, dataErr := httpapi.NewData(o)
		_, adminErr := httpapi.NewAdmin(o)
		if (dataErr != nil) != row.data || adminErr == nil {
			t.Errorf("row %d: %v, %v", i, dataErr, adminErr)
		}
	}
	bare := options(&fake{})
	bare.Jitter, bare.Settings = nil, func() *httpapi.Settings { return nil }
	if got := serve(data(t, bare), request("POST", "/v1/check", `{"tenant":"a"}`)); got.status != http.StatusOK {
		t.Errorf("nil settings: %d %s", got.status, got.body)
	}
}

// A region is reopened by its own name, once it has lost data.
func TestReopen(t *testing.T) {
	for _, row := range []struct {
		refused string
		err     error
		status  int
		words   string
	}{
		{"", nil, 204, ""},
		{"nothing was lost", nil, 409, "nothing was lost"},
		{"", errors.New("redis is away"), 503, "not known: redis is away"},
	} {
		o, region := options(&fake{}), ""
		o.Reopen = func(_ context.Context, name string) (string, error) {
			region = name
			return row.refused, row.err
		}
		if got := serve(admin(t, o), request("POST", "/v1/reopen/eu-west", "")); got.status != row.status || !strings.Contains(got.body, row.words) || region != "eu-west" {
			t.Errorf("%q, %v: %d %s, region %q", row.refused, row.err, got.status, got.body, region)
		}
	}
	o := options(&fake{})
	o.Reopen = nil
	if got := serve(admin(t, o), request("POST", "/v1/reopen/eu-west", "")); got.status != 409 {
		t.Errorf("where there is nothing to reopen: %d %s", got.status, got.body)
	}
}
