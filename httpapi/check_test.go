package httpapi_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/golden"
)

// page writes an answer as a person reads it, for golden files.
func page(r reply) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\n", r.status, http.StatusText(r.status))
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, r.field(name))
	}
	b.WriteString("\n" + r.body)
	return b.String()
}

// everything is a decision with all that one can have.
func everything(_ context.Context, r quota.Request) (quota.Decision, error) {
	d := denied(r)
	d.StoreUS, d.Override = 1_800_000_000_000_000, &quota.Override{Version: quota.OverrideVersion{Counter: 2, WallUS: 1_700_000_000_000_000, Region: "eu"}, ExpiresUS: 1_900_000_000_000_000}
	d.Limits = append(d.Limits,
		quota.LimitState{Limit: &quota.Limit{Name: "monthly", Units: 9, Algorithm: quota.CalendarPeriods, Calendar: &quota.Calendar{Unit: quota.CalendarMonth, Zone: time.UTC, Anchor: 1}, Window: quota.MaxWindow}, Ceiling: 9, Remaining: 9},
		quota.LimitState{Limit: &quota.Limit{Name: "inflight", Units: 4, Algorithm: quota.Concurrent, Window: time.Minute}, Ceiling: 4, Remaining: 4})
	d.Usage = [][]quota.RegionUsage{{}, {{Region: "<eu>", Used: 7, Held: 1}}, nil, nil}
	return d, nil
}

// suspended is a denial whose end nobody knows, at no known time of the store.
func suspended(ctx context.Context, r quota.Request) (quota.Decision, error) {
	d, err := everything(ctx, r)
	d.StoreUS, d.Override.ExpiresUS, d.Usage, d.Reason = 0, 0, nil, quota.ReasonSuspended
	d.Limits[1].Reason = quota.ReasonSuspended
	return d, err
}

func TestAnswers(t *testing.T) {
	none := func(_ context.Context, r quota.Request) (quota.Decision, error) {
		return quota.Decision{Allowed: true, Tenant: r.Tenant, Policy: "standard"}, nil
	}
	local := func(_ context.Context, r quota.Request) (quota.Decision, error) {
		d := allowed(r)
		d.Basis, d.Mode, d.Reason, d.Replayed = quota.BasisLocal, quota.ModeLocal, quota.ReasonRedisTimeout, true
		return d, nil
	}
	explained := func(_ context.Context, r quota.Request) (quota.Decision, error) {
		d := allowed(r)
		if r.Explain {
			d.Explanation = &quota.Explanation{Region: "eu-west", ConfigHash: "c0ffee", StoreUS: 1_795_198_405_260_197, Limits: []quota.LimitExplanation{
				{Name: "burst", Algorithm: "sliding_log", Partition: "standard:::", Ceiling: 20, CeilingTerms: quota.CeilingTerms{Formula: "L <= 20", Part: 20}},
			}}
		}
		return d, nil
	}
	rows := []struct {
		name   string
		decide func(context.Context, quota.Request) (quota.Decision, error)
		method string
		target string
		body   string
	}{
		{"allowed", nil, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"denied", deny, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"everything", everything, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"suspended", suspended, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"closed", closed, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"shed", shed, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"shed_observe", passed, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"shed_open", opened, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"shed_report", shed, "POST", "/v1/report", `{"tenant":"acme"}`},
		{"shed_usage", shed, "GET", "/v1/usage/acme", ""},
		{"closed_report", closed, "POST", "/v1/report", `{"tenant":"acme"}`},
		{"observe", observed, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"no_limit", none, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"local_replayed", local, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"explain", explained, "POST", "/v1/check?explain=1", `{"tenant":"acme"}`},
		{"undecided", fails, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"report", spent, "POST", "/v1/report", `{"tenant":"acme","cost":7}`},
		{"report_within", nil, "POST", "/v1/report", `{"tenant":"acme","cost":7}`},
		{"batch_encoded", nil, "POST", "/v1/check%3Abatch", `{"checks":[{"tenant":"acme"}]}`},
		{"usage", deny, "GET", "/v1/usage/acme?cost=3&dim.user=42", ""},
		{"invalid", nil, "POST", "/v1/check", `{"tennant":"acme","cost":1.5,"dimensions":{"user":7}}`},
		{"not_found", nil, "POST", "/v1/chek", `{"tenant":"acme"}`},
		{"other_listener", nil, "GET", "/v1/regions", ""},
		{"wrong_method", nil, "PUT", "/v1/check", `{"tenant":"acme"}`},
	}
	doc := document(t)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := serve(data(t, options(&fake{decide: row.decide})), request(row.method, row.target, row.body))
			golden.Compare(t, row.name+".golden", page(got))
			doc.isDocumented(t, strings.ToLower(row.method), row.target, got)
		})
	}
}

// Whatever is wrong is answered with a problem document that names the field
// and the rule, and nothing is decided.
func TestBadInput(t *testing.T) {
	const (
		check, batch = "POST /v1/check", "POST /v1/check:batch"
		cost         = "#/cost: must be a whole number between 1 and 1099511627776"
		acme         = `{"tenant":"a"}`
	)
	doc, long := document(t), strings.Repeat("x", 300)
	dims := `"d":"v"`
	for i := range 16 {
		dims += fmt.Sprintf(`,"d%d":"v"`, i)
	}
	rows := []struct {
		call   string
		body   string
		header string
		status int      // 0 means 400
		want   []string // beginnings of the errors, all of them, in order
	}{
		{check, `{"tenant":"a","tier":1}`, "", 0, []string{"#/tier: is not a member here; there are: tenant, policy, dimensions, cost"}},
		{check, `{"tenant":"a","a/b~ é":1}`, "", 0, []string{"#/a~1b~0%20%C3%A9: is not a member"}},
		{check, `{"tenant":"a","tenant":"a"}`, "", 0, []string{"#/tenant: is duplicated"}},
		{check, `{"tenant":"a","ten\u0061nt":"b"}`, "", 0, []string{"#/tenant: is duplicated"}},
		{check, `{"tenant":"a","dimensions":{"u":"1","u":"2"}}`, "", 0, []string{"#/dimensions/u: is duplicated"}},
		{check, `{"tenant":7}`, "", 0, []string{"#/tenant: must be a string, is a number"}},
		{check, `{"tenant":null}`, "", 0, []string{"#/tenant: must be a string, is null"}},
		{check, `{"tenant":"a","policy":""}`, "", 0, []string{"#/policy: must not be empty"}},
		{check, `{"tenant":"a","policy":["x"]}`, "", 0, []string{"#/policy: must be a string, is an array"}},
		{check, `{"tenant":"a","dimensions":[]}`, "", 0, []string{"#/dimensions: must be an object of strings, is an array"}},
		{check, `{"tenant":"a","dimensions":{"user":42}}`, "", 0, []string{"#/dimensions/user: must be a string, is a number"}},
		{check, `{"tenant":"a","dimensions":{"User":"x"}}`, "", 0, []string{"#/dimensions: a name"}},
		{check, `{"tenant":"a","dimensions":{"user":""}}`, "", 0, []string{"#/dimensions/user: must not be empty"}},
		{check, `{"tenant":"a","dimensions":{` + dims + `}}`, "", 0, []string{"#/dimensions: may have at most 16"}},
		{check, `{"tenant":"a","cost":1.0}`, "", 0, []string{cost}}, // see TestParseCost
		{check, `{"tenant":"a","cost":"5"}`, "", 0, []string{cost}},
		{check, `{"tenant":"a","cost":1` + strings.Repeat("0", 400) + `}`, "", 0, []string{cost}},
		{check, `{}`, "", 0, []string{"#/tenant: must not be empty"}},
		{check, `{"tenant":"a\u0000"}`, "", 0, []string{"#/tenant: must be printable ASCII"}},
		{check + "?x=1", `{"x":1,"tenant":"a","cost":"1"}`, "Idempotency-Key: a b", 0, []string{
			"#/x: is not a member", "#/x: is not a parameter", "#: header Idempotency-Key must be printable",
		}},
		{check + "?x=1", `{"tenant":"","policy":"P","dimensions":{"u":" "}}`, "Idempotency-Key: a b", 0, []string{
			"#/tenant: must not be empty", "#/policy: a name", "#/dimensions/u: must be printable",
			"#/x: is not a parameter", "#: header Idempotency-Key must be printable",
		}},
		{check, `{"tenant":"a","policy":null}`, "", 0, []string{"#/policy: must be a string, is null"}},
		{check, `{"tenant":"a","dimensions":null}`, "", 0, []string{"#/dimensions: must be an object of strings, is null"}},
		{check, `{"tenant":"a","cost":null}`, "", 0, []string{cost}},
		{check, ``, "", 0, []string{"#: the body is empty"}},
		{check, `["tenant"]`, "", 0, []string{"#: must be an object with the members tenant"}},
		{check, `{"tenant":"a"`, "", 0, []string{"#: is not JSON"}},
		{check, acme + acme, "", 0, []string{"#: is not JSON at byte 14"}},
		{check, acme + " x", "", 0, []string{"#: is not JSON at byte 15"}},
		{check, `{"tenant":"a"/*x*/}`, "", 0, []string{"#: is not JSON at byte 13"}},
		{check, "{\"tenant\":\"a\xff\"}", "", 0, []string{"#/tenant: is not JSON at byte"}},
		{check, "\xef\xbb\xbf" + acme, "", 0, []string{"#: is not JSON"}},
		{check, acme, "Idempotency-Key: a\nIdempotency-Key: b", 0, []string{"#: header Idempotency-Key is duplicated"}},
		{check, acme, "Idempotency-Key: ", 0, []string{"#: header Idempotency-Key must not be empty"}},
		{check, acme, "Idempotency-Key: " + long, 0, []string{"#: header Idempotency-Key must have at most 64"}},
		{check + "?cost=5", acme, "", 0, []string{"#/cost: is not a parameter here"}},
		{check + "?explain=1&explain=1", acme, "", 0, []string{"#/explain: is duplicated"}},
		{check + "?explain=yes", acme, "", 0, []string{"#/explain: must be 0 or 1"}},
		{check + "?a=%zz", acme, "", 0, []string{"#: the query is not well-formed"}},
		{check, `{"tenant":"a"` + strings.Repeat(" ", httpapi.MaxBody-13) + `}`, "", 413, nil},
		{check, acme, "Content-Type: multipart/form-data", 415, nil},
		{check, acme, "Content-Type: application/json; charset=latin1", 415, nil},
		{check, acme, "Content-Type: application/x-www-form-urlencoded\nOrigin: http://x", 415, nil},
		{check, acme, "Origin: http://x", 415, nil},
		{check, acme, "Sec-Fetch-Site: same-site", 415, nil},
		{check, acme, "Content-Encoding: gzip", 415, nil},
		{"POST /v1/report", `{"tenant":"a","cost":0}`, "", 0, []string{cost}},

		{batch, `{"checks":[]}`, "", 0, []string{"#/checks: must have 1 to 100 checks, has 0"}},
		{batch, `{"checks":[` + strings.Repeat(acme+",", 100) + acme + `]}`, "", 0, []string{"#/checks: must have 1 to 100 checks, has 101"}},
		{batch, `{}`, "", 0, []string{"#/checks: must have 1 to 100 checks, has 0"}},
		{batch, `{"checks":{"tenant":"a"}}`, "", 0, []string{"#/checks: must be an array of 1 to 100 checks, is an object"}},
		{batch, `[{"tenant":"a"}]`, "", 0, []string{"#: must be an object with the members checks, is an array"}},
		{batch, `{"checks":[{"tenant":"a"}],"checks":[]}`, "", 0, []string{"#/checks: is duplicated"}},
		{batch, `{"x":1,"checks":[{"tenant":"a"}],"y":2}`, "", 0, []string{"#/x: is not a member"}},
		{batch, `{"checks":[{"tenant":"a"},{"tenant":"b"]}`, "", 0, []string{"#/checks/1: is not JSON at byte 39"}},
		{batch, `{"checks":[{"tenant":"a"}]}]`, "", 0, []string{"#: is not JSON at byte 27"}},
		{batch, `}`, "", 0, []string{"#: is not JSON at byte 0"}},
		{batch, `"`, "", 0, []string{"#: is not JSON at byte 1"}},
		{batch, `{0:[]}`, "", 0, []string{"#: is not JSON at byte 1"}},
		{batch, `{"checks":[{"tenant":"a"}]}`, "Idempotency-Key: k", 0, []string{"#: header Idempotency-Key belongs to one request"}},
		{batch, `{"checks":[{"tenant":"a"}]}`, "Origin: http://x", 415, nil},

		{"GET /v1/usage/a?tier=x", "", "", 0, []string{"#/tier: is not a parameter here; there are: policy, cost, explain, dim.<name>"}},
		{"GET /v1/usage/a?cost=1&cost=1", "", "", 0, []string{"#/cost: is duplicated"}},
		{"GET /v1/usage/a?cost=%2B1", "", "", 0, []string{"#/cost: must be a whole number"}},
		{"GET /v1/usage/a?policy=", "", "", 0, []string{"#/policy: must not be empty"}},
		{"GET /v1/usage/a?dim.user=1&dim.user=2", "", "", 0, []string{"#/dimensions/user: is duplicated"}},
		{"GET /v1/usage/a?dim.user=", "", "", 0, []string{"#/dimensions/user: must not be empty"}},
		{"GET /v1/usage/a?dim.=1", "", "", 0, []string{"#/dimensions: a name"}},
		{"GET /v1/usage/%00?cost=x", "", "", 0, []string{"#/cost: must be a whole number", "#/tenant: must be printable"}},
	}
	for _, row := range rows {
		t.Run(fmt.Sprintf("%s %.40s %s", row.call, row.body, row.header), func(t *testing.T) {
			f := &fake{}
			var header []string
			if row.header != "" {
				header = strings.Split(row.header, "\n")
			}
			method, target, _ := strings.Cut(row.call, " ")
			got := serve(data(t, options(f)), request(method, target, row.body, header...))
			if got.status != cmp.Or(row.status, 400) || got.field("Content-Type") != "application/problem+json" {
				t.Errorf("%d %v, want %d: %s", got.status, got.header, row.status, got.body)
			}
			checkErrors(t, got.errors(t), row.want)
			doc.isDocumented(t, strings.ToLower(method), target, got)
			if f.calls() != 0 {
				t.Errorf("the limiter decided %v", f.asked)
			}
		})
	}
}

func checkErrors(t *testing.T, got, want []string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("errors:\n got %q\nwant %q", got, want)
	}
}

// TestBadRequestsAreCheap: a body that breaks rules, as large as one may be, takes at most 8 KiB of answer and 2,500
// allocations, 25 for each check of a batch.
func TestBadRequestsAreCheap(t *testing.T) {
	h := data(t, options(&fake{}))
	filled := func(begin, again, end string) string {
		return begin + strings.Repeat(again, (httpapi.MaxBody-len(begin)-len(end))/len(again)) + end
	}
	names := strings.Builder{} // that differ, which has to be found out
	for i := 0; names.Len() < httpapi.MaxBody-400; i++ {
		fmt.Fprintf(&names, `"%x":"",`, i)
	}
	object := `{` + names.String() + `"":""}`
	for name, body := range map[string]string{
		"many names":   `{"tenant":"a","dimensions":` + object + `}`,
		"an object":    `{"tenant":"a","cost":` + object + `}`,
		"in a check":   `{"checks":[{"tenant":"a","dimensions":` + object + `}]}`,
		"as a cost":    `{"checks":[{"tenant":"a","cost":` + object + `}]}`,
		"check 101":    `{"checks":[` + strings.Repeat("1,", 100) + object + `]}`,
		"members":      filled(`{`, `"":1,`, `"":1}`),
		"long name":    filled(`{"`, `\u0001`, `":1}`),
		"duplicates":   filled(`{"tenant":"a"`, `,"tenant":1`, `}`),
		"dimensions":   filled(`{"tenant":"a","dimensions":{`, `"":1,`, `"":1}}`),
		"nested":       filled(`{"x":`, `[`, ``),
		"objects":      filled(`{"x":[`, `{"":{}},`, `1]}`),
		"digits":       filled(`{"tenant":"a","cost":`, `9`, `}`),
		"tenant":       filled(`{"tenant":"`, `\u0001`, `"}`),
		"two values":   filled(`{"tenant":"a"}`, `{}`, ``),
		"not UTF-8":    filled(`{"tenant":"`, "\xff", `"}`),
		"numbers":      filled(`{"checks":[`, `1,`, `1]}`),
		"empty checks": filled(`{"checks":[`, `{},`, `{}]}`),
		"wrong checks": `{"checks":[` + strings.Repeat(`{"tenant":"a b","cost":0,"dimensions":{"X":"\u0001"}},`, 99) + `{}]}`,
	} {
		for _, target := range []string{"/v1/check", "/v1/check:batch"} {
			var w *httptest.ResponseRecorder
			allocations := testing.AllocsPerRun(5, func() {
				w = httptest.NewRecorder()
				h.ServeHTTP(w, request("POST", target, body))
			})
			if w.Body.Len() > 8<<10 || allocations > 2500 || !strings.Contains(w.Body.String(), `"status":400`) {
				t.Errorf("%s to %s: %.0f allocations and %d bytes: %.200s", name, target, allocations, w.Body.Len(), w.Body)
			}
		}
	}
}

// TestManyErrorsStaySmall: the answer is bounded, also where each of a hundred checks breaks a rule.
func TestManyErrorsStaySmall(t *testing.T) {
	checks := strings.Repeat(`{"tenant":"a","`+strings.Repeat("<", 80)+`":0},`, 99)
	got := serve(data(t, options(&fake{})), request("POST", "/v1/check:batch", `{"checks":[`+checks+`{}]}`))
	if len(got.body) > 8<<10 || strings.Count(got.body, `"status":400`) != 100 || !strings.HasPrefix(got.body, `{"results":[{"type":"urn:regiond:problem:invalid-request","title"`) {
		t.Errorf("%d bytes: %.300s", len(got.body), got.body)
	}
	query := strings.Repeat("x%3C%3E", 12)
	for i := range 30 {
		query += fmt.Sprintf("&%s%d=1", strings.Repeat("%3C", 100), i)
	}
	got = serve(data(t, options(&fake{})), request("GET", "/v1/usage/a?"+query, ""))
	if errs := got.errors(t); len(got.body) > 8<<10 || len(errs) < 2 || errs[len(errs)-1] != "#: and more errors" {
		t.Errorf("%d bytes with %d errors", len(got.body), len(errs))
	}
}

func TestBatchResultsKeepTheirPlaces(t *testing.T) {
	f := &fake{decide: byTenant}
	body := `{"checks":[
		{"tenant":"a"}, {"tenant":"full"}, {"tenant":"a b"}, {"tenant":"x","cost":1e3,"tier":1},
		{"tenant":"dear","cost":601}, 7, {"tenant":"lost"}, {"tenant":"closed"}, {"tenant":"busy"}, {"tenant":"a","dimensions":{"user":"1"}}]}`
	got := serve(data(t, options(f)), request("POST", "/v1/check:batch?explain=1", body))
	golden.Compare(t, "batch.golden", page(got))
	document(t).isDocumented(t, "post", "/v1/check:batch", got)
	if f.calls() != 7 || !f.last(t).Explain {
		t.Errorf("the limiter decided %+v", f.seen)
	}
}

func TestLimiterGetsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{decide: func(ctx context.Context, _ quota.Request) (quota.Decision, error) {
			at, _ := ctx.Deadline()
			time.Sleep(time.Until(at))
			return quota.Decision{}, context.DeadlineExceeded
		}}
		start := time.Now()
		got := serve(data(t, options(f)), request("POST", "/v1/check", `{"tenant":"a"}`))
		if took := time.Since(start); took != httpapi.DefaultDeadline || got.status != 503 || got.field("Retry-After") != "1" {
			t.Errorf("%d after %v, Retry-After %q", got.status, took, got.field("Retry-After"))
		}
	})
}

func TestOneDrawForAllFieldsOfAnAnswer(t *testing.T) {
	draws := 0
	o := options(&fake{decide: deny})
	o.Jitter = func() float64 { draws++; return 0.999 }
	got := serve(data(t, o), request("POST", "/v1/check", `{"tenant":"a"}`))
	if draws != 1 || got.field("Retry-After") != "14" || !strings.Contains(got.field("RateLimit"), "t=14") || !strings.Contains(got.body, `"retry_after_ms":12001`) {
		t.Errorf("%d draws, %v, %s", draws, got.header, got.body)
	}
}
