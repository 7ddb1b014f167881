package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

// page writes an answer as a person reads it, for golden files.
func page(r reply) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d %s\n", r.status, http.StatusText(r.status))
	names := make([]string, 0, len(r.header))
	for name := range r.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%s: %s\n", name, r.field(name))
	}
	b.WriteString("\n" + r.body)
	return b.Bytes()
}

func TestAnswers(t *testing.T) {
	closedDecision := func(context.Context, quota.Request) (quota.Decision, error) {
		return quota.Decision{Policy: "standard", Basis: quota.BasisClosed, Mode: quota.ModeLocal, Reason: quota.ReasonRedisDown}, nil
	}
	observe := func(_ context.Context, r quota.Request) (quota.Decision, error) {
		d := denied(r)
		d.Allowed, d.WouldDeny, d.Enforcement = true, true, quota.Observe
		return d, nil
	}
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
	broken := func(context.Context, quota.Request) (quota.Decision, error) {
		return quota.Decision{}, errors.New("no store")
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
		{"closed", closedDecision, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"observe", observe, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"no_limit", none, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"local_replayed", local, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"explain", explained, "POST", "/v1/check?explain=1", `{"tenant":"acme"}`},
		{"undecided", broken, "POST", "/v1/check", `{"tenant":"acme"}`},
		{"report", deny, "POST", "/v1/report", `{"tenant":"acme"}`},
		{"usage", deny, "GET", "/v1/usage/acme?cost=3&dim.user=42", ""},
		{"invalid", nil, "POST", "/v1/check", `{"tennant":"acme","cost":1.5,"dimensions":{"user":7}}`},
		{"not_found", nil, "POST", "/v1/chek", `{"tenant":"acme"}`},
		{"wrong_method", nil, "PUT", "/v1/check", `{"tenant":"acme"}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := serve(data(t, options(&fake{decide: row.decide})), request(row.method, row.target, row.body))
			golden(t, row.name, page(got))
		})
	}
}

func TestRequestReachesTheLimiterWhole(t *testing.T) {
	f := &fake{}
	h := data(t, options(f))
	serve(h, request("POST", "/v1/check?explain=1",
		`{"cost": 7, "dimensions": {"user": "a+b@c", "\u0069p": "192.0.2.1"}, "policy": "gold", "tenant": "auth0|x"}`,
		"Idempotency-Key: k-1", "Content-Type: application/json; charset=UTF-8"))
	got := f.last(t)
	want := quota.Request{
		Tenant: "auth0|x", Policy: "gold", Cost: 7, IdempotencyKey: "k-1", Explain: true,
		Dimensions: quota.Dimensions{{Name: "ip", Value: "192.0.2.1"}, {Name: "user", Value: "a+b@c"}},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	serve(h, request("GET", "/v1/usage/a%2Fb%7Cc?policy=gold&cost=2&dim.user=x%2By&dim.ip=%3A%3A1&explain=0", ""))
	got = f.last(t)
	want = quota.Request{
		Tenant: "a/b|c", Policy: "gold", Cost: 2,
		Dimensions: quota.Dimensions{{Name: "ip", Value: "::1"}, {Name: "user", Value: "x+y"}},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if serve(h, request("POST", "/v1/check", `{"tenant":"t"}`)); f.last(t).Cost != 1 {
		t.Errorf("cost defaults to %d, want 1", f.last(t).Cost)
	}
}

// Whatever is wrong is answered with a problem document that names the field
// and the rule, and the limiter is never asked.
func TestBadInput(t *testing.T) {
	const cost = "#/cost: must be a whole number between 1 and 1099511627776"
	long := strings.Repeat("x", 300)
	var dims []string
	for i := range 17 {
		dims = append(dims, fmt.Sprintf("%q:%q", fmt.Sprintf("d%d", i), "v"))
	}
	rows := []struct {
		name   string
		target string
		body   string
		header string
		status int
		want   []string // beginnings of the errors, all of them, in order
	}{
		{"unknown field", "/v1/check", `{"tenant":"a","tier":1}`, "", 400, []string{"#/tier: is not a member here; there are: tenant, policy, dimensions, cost"}},
		{"unknown field with odd name", "/v1/check", `{"tenant":"a","a/b~ é":1}`, "", 400, []string{"#/a~1b~0%20%C3%A9: is not a member"}},
		{"duplicate tenant", "/v1/check", `{"tenant":"a","tenant":"a"}`, "", 400, []string{"#/tenant: is duplicated"}},
		{"duplicate by escape", "/v1/check", `{"tenant":"a","ten\u0061nt":"b"}`, "", 400, []string{"#/tenant: is duplicated"}},
		{"duplicate dimension", "/v1/check", `{"tenant":"a","dimensions":{"u":"1","u":"2"}}`, "", 400, []string{"#/dimensions/u: "}},
		{"tenant of wrong type", "/v1/check", `{"tenant":7}`, "", 400, []string{"#/tenant: must be a string, is a number"}},
		{"tenant null", "/v1/check", `{"tenant":null}`, "", 400, []string{"#/tenant: must be a string, is null"}},
		{"policy empty", "/v1/check", `{"tenant":"a","policy":""}`, "", 400, []string{"#/policy: must not be empty"}},
		{"policy of wrong type", "/v1/check", `{"tenant":"a","policy":["x"]}`, "", 400, []string{"#/policy: must be a string, is an array"}},
		{"policy no name", "/v1/check", `{"tenant":"a","policy":"Gold Plus"}`, "", 400, []string{"#/policy: a name"}},
		{"dimensions of wrong type", "/v1/check", `{"tenant":"a","dimensions":[]}`, "", 400, []string{"#/dimensions: must be an object of strings, is an array"}},
		{"dimension of wrong type", "/v1/check", `{"tenant":"a","dimensions":{"user":42}}`, "", 400, []string{"#/dimensions/user: must be a string, is a number"}},
		{"dimension no name", "/v1/check", `{"tenant":"a","dimensions":{"User":"x"}}`, "", 400, []string{"#/dimensions: a name"}},
		{"dimension empty", "/v1/check", `{"tenant":"a","dimensions":{"user":""}}`, "", 400, []string{"#/dimensions/user: must not be empty"}},
		{"too many dimensions", "/v1/check", `{"tenant":"a","dimensions":{` + strings.Join(dims, ",") + `}}`, "", 400, []string{"#/dimensions: may have at most 16"}},
		{"cost 0", "/v1/check", `{"tenant":"a","cost":0}`, "", 400, []string{cost}},
		{"cost negative", "/v1/check", `{"tenant":"a","cost":-1}`, "", 400, []string{cost}},
		{"cost fractional", "/v1/check", `{"tenant":"a","cost":1.5}`, "", 400, []string{cost}},
		{"cost 1.0", "/v1/check", `{"tenant":"a","cost":1.0}`, "", 400, []string{cost}},
		{"cost 1e3", "/v1/check", `{"tenant":"a","cost":1e3}`, "", 400, []string{cost}},
		{"cost text", "/v1/check", `{"tenant":"a","cost":"5"}`, "", 400, []string{cost}},
		{"cost above 2^40", "/v1/check", `{"tenant":"a","cost":1099511627777}`, "", 400, []string{cost}},
		{"cost huge", "/v1/check", `{"tenant":"a","cost":1` + strings.Repeat("0", 400) + `}`, "", 400, []string{cost}},
		{"tenant missing", "/v1/check", `{}`, "", 400, []string{"#/tenant: is required"}},
		{"tenant empty", "/v1/check", `{"tenant":""}`, "", 400, []string{"#/tenant: must not be empty"}},
		{"tenant with space", "/v1/check", `{"tenant":"a b"}`, "", 400, []string{"#/tenant: must be printable ASCII"}},
		{"tenant with brace", "/v1/check", `{"tenant":"a}b"}`, "", 400, []string{"#/tenant: must be printable ASCII"}},
		{"tenant with NUL", "/v1/check", `{"tenant":"a\u0000"}`, "", 400, []string{"#/tenant: must be printable ASCII"}},
		{"tenant with newline", "/v1/check", `{"tenant":"a\n"}`, "", 400, []string{"#/tenant: must be printable ASCII"}},
		{"tenant not ASCII", "/v1/check", `{"tenant":"é"}`, "", 400, []string{"#/tenant: must be printable ASCII"}},
		{"tenant long", "/v1/check", `{"tenant":"` + long + `"}`, "", 400, []string{"#/tenant: must be at most 256 bytes"}},
		{"all at once", "/v1/check?x=1", `{"x":1,"tenant":"","policy":"P","dimensions":{"u":" ","v":1},"cost":"1"}`, "Idempotency-Key: a b", 400, []string{
			"#/x: is not a member", "#/dimensions/v: must be a string", cost, "#/tenant: must not be empty", "#/policy: a name", "#/dimensions/u: must be printable",
			"#/x: is not a parameter", "#: header Idempotency-Key must be printable",
		}},
		{"empty body", "/v1/check", ``, "", 400, []string{"#: the body is empty"}},
		{"not an object", "/v1/check", `["tenant"]`, "", 400, []string{"#: must be an object with the members tenant"}},
		{"cut off", "/v1/check", `{"tenant":"a"`, "", 400, []string{"#: is not JSON"}},
		{"two values", "/v1/check", `{"tenant":"a"}{"tenant":"a"}`, "", 400, []string{"#: the body must hold one JSON value"}},
		{"text after", "/v1/check", `{"tenant":"a"} x`, "", 400, []string{"#: the body must hold one JSON value"}},
		{"comment", "/v1/check", `{"tenant":"a"/*x*/}`, "", 400, []string{"#: is not JSON at byte 13"}},
		{"not UTF-8", "/v1/check", "{\"tenant\":\"a\xff\"}", "", 400, []string{"#/tenant: is not JSON at byte"}},
		{"byte order mark", "/v1/check", "\xef\xbb\xbf{\"tenant\":\"a\"}", "", 400, []string{"#: is not JSON"}},
		{"key twice", "/v1/check", `{"tenant":"a"}`, "Idempotency-Key: a\nIdempotency-Key: b", 400, []string{"#: header Idempotency-Key is duplicated"}},
		{"key empty", "/v1/check", `{"tenant":"a"}`, "Idempotency-Key: ", 400, []string{"#: header Idempotency-Key must not be empty"}},
		{"key long", "/v1/check", `{"tenant":"a"}`, "Idempotency-Key: " + long, 400, []string{"#: header Idempotency-Key must have at most 64"}},
		{"unknown parameter", "/v1/check?cost=5", `{"tenant":"a"}`, "", 400, []string{"#/cost: is not a parameter here"}},
		{"explain twice", "/v1/check?explain=1&explain=1", `{"tenant":"a"}`, "", 400, []string{"#/explain: is duplicated"}},
		{"explain maybe", "/v1/check?explain=yes", `{"tenant":"a"}`, "", 400, []string{"#/explain: must be 0 or 1"}},
		{"broken query", "/v1/check?a=%zz", `{"tenant":"a"}`, "", 400, []string{"#: the query is not well-formed"}},
		{"64 KiB and one", "/v1/check", `{"tenant":"a"` + strings.Repeat(" ", httpapi.MaxBody-13) + `}`, "", 413, nil},
		{"1 MB id", "/v1/check", `{"tenant":"` + strings.Repeat("a", 1<<20) + `"}`, "", 413, nil},
		{"a form", "/v1/check", `tenant=a`, "Content-Type: multipart/form-data", 415, nil},
		{"other charset", "/v1/check", `{"tenant":"a"}`, "Content-Type: application/json; charset=latin1", 415, nil},
		{"a browser's form", "/v1/check", `{"tenant":"a"}`, "Content-Type: application/x-www-form-urlencoded\nOrigin: http://x", 415, nil},
		{"a browser's untyped body", "/v1/check", `{"tenant":"a"}`, "Origin: http://x", 415, nil},
		{"a page of the same site", "/v1/check", `{"tenant":"a"}`, "Sec-Fetch-Site: same-site", 415, nil},
		{"a batch of a browser", "/v1/check:batch", `{"checks":[{"tenant":"a"}]}`, "Origin: http://x", 415, nil},
		{"compressed", "/v1/check", `{"tenant":"a"}`, "Content-Encoding: gzip", 415, nil},
		{"report too", "/v1/report", `{"tenant":"a","cost":0}`, "", 400, []string{cost}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := &fake{}
			var header []string
			if row.header != "" {
				header = strings.Split(row.header, "\n")
			}
			got := serve(data(t, options(f)), request("POST", row.target, row.body, header...))
			if got.status != row.status {
				t.Errorf("status %d, want %d: %s", got.status, row.status, got.body)
			}
			if ct := got.field("Content-Type"); ct != "application/problem+json" {
				t.Errorf("Content-Type %q", ct)
			}
			checkMistakes(t, got.mistakes(t), row.want)
			if f.calls() != 0 {
				t.Errorf("the limiter was asked %v", f.asked)
			}
		})
	}
}

func checkMistakes(t *testing.T, got, want []string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := range want {
		ok = ok && strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("errors:\n got %q\nwant %q", got, want)
	}
}

func TestBadUsageQueries(t *testing.T) {
	rows := []struct {
		target string
		want   []string
	}{
		{"/v1/usage/a?tier=x", []string{"#/tier: is not a parameter here; there are: policy, cost, explain, dim.<name>"}},
		{"/v1/usage/a?cost=1&cost=1", []string{"#/cost: is duplicated"}},
		{"/v1/usage/a?cost=0", []string{"#/cost: must be a whole number"}},
		{"/v1/usage/a?cost=%2B1", []string{"#/cost: must be a whole number"}},
		{"/v1/usage/a?policy=", []string{"#/policy: must not be empty"}},
		{"/v1/usage/a?dim.user=1&dim.user=2", []string{"#/dimensions/user: is duplicated"}},
		{"/v1/usage/a?dim.user=", []string{"#/dimensions/user: must not be empty"}},
		{"/v1/usage/a?dim.=1", []string{"#/dimensions: a name"}},
		{"/v1/usage/a%20b", []string{"#/tenant: must be printable"}},
		{"/v1/usage/%00?cost=x", []string{"#/cost: must be a whole number", "#/tenant: must be printable"}},
	}
	for _, row := range rows {
		t.Run(row.target, func(t *testing.T) {
			f := &fake{}
			got := serve(data(t, options(f)), request("GET", row.target, ""))
			if got.status != 400 || f.calls() != 0 {
				t.Errorf("status %d after %d calls, want 400 after none", got.status, f.calls())
			}
			checkMistakes(t, got.mistakes(t), row.want)
		})
	}
}

// TestContentTypes that are accepted, besides what the other tests send: none.
func TestContentTypes(t *testing.T) {
	for _, header := range [][]string{
		{"Content-Type: application/x-www-form-urlencoded"}, // curl's own
		{"Content-Type: application/json", "Origin: http://x", "Sec-Fetch-Site: cross-site"},
	} {
		if got := serve(data(t, options(&fake{})), request("POST", "/v1/check", `{"tenant":"acme"}`, header...)); got.status != 200 {
			t.Errorf("%q: status %d: %s", header, got.status, got.body)
		}
	}
}

func TestBodyOfUnknownLength(t *testing.T) {
	for size, want := range map[int]int{httpapi.MaxBody: 200, httpapi.MaxBody + 1: 413} {
		const check = `{"tenant":"a"}`
		r := request("POST", "/v1/check", check+strings.Repeat(" ", size-len(check)))
		r.ContentLength = -1
		if got := serve(data(t, options(&fake{})), r); got.status != want {
			t.Errorf("%d bytes: %d, want %d", size, got.status, want)
		}
	}
}

func TestParseCost(t *testing.T) {
	rows := []struct {
		text string
		want int64 // 0 means refused
	}{
		{"1", 1},
		{"10", 10},
		{"1099511627776", quota.MaxUnits},
		{"1099511627777", 0},
		{"9999999999999", 0},
		{"10995116277760", 0},
		{"9223372036854775808", 0},
		{"", 0},
		{"0", 0},
		{"00", 0},
		{"01", 0},
		{"-1", 0},
		{"+1", 0},
		{"1.0", 0},
		{"1e3", 0},
		{" 1", 0},
		{"1 ", 0},
		{"0x1", 0},
		{"1_0", 0},
		{"١", 0},
	}
	for _, row := range rows {
		got, ok := httpapi.ParseCost(row.text)
		if ok != (row.want > 0) || ok && got != row.want {
			t.Errorf("%q: %d %v, want %d", row.text, got, ok, row.want)
		}
	}
}

func TestManyMistakesStaySmall(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, `"x%d":0,`, i)
	}
	got := serve(data(t, options(&fake{})), request("POST", "/v1/check", `{`+b.String()+`"tenant":"a"}`))
	ms := got.mistakes(t)
	if len(ms) != 33 || ms[32] != "#: and 4968 more mistakes" {
		t.Errorf("%d errors, the last %q", len(ms), ms[len(ms)-1])
	}
}

func TestFaultsOfTheLimiter(t *testing.T) {
	rows := []struct {
		fault  quota.Fault
		status int
		kind   string
	}{
		{quota.FaultInput, 400, "urn:regiond:problem:invalid-request"},
		{quota.FaultCost, 422, "urn:regiond:problem:cost-exceeds-limit"},
		{quota.FaultReuse, 422, "urn:regiond:problem:idempotency-key-reuse"},
	}
	for _, row := range rows {
		f := &fake{decide: func(context.Context, quota.Request) (quota.Decision, error) {
			return quota.Decision{}, fmt.Errorf("decide: %w", &quota.Invalid{Fault: row.fault, Fields: []quota.FieldError{{Pointer: "/cost", Detail: "is at most 20"}}})
		}}
		for _, call := range []*http.Request{
			request("POST", "/v1/check", `{"tenant":"a","cost":21}`),
			request("POST", "/v1/report", `{"tenant":"a","cost":21}`),
			request("GET", "/v1/usage/a?cost=21", ""),
		} {
			got := serve(data(t, options(f)), call)
			if got.status != row.status || got.json(t)["type"] != row.kind || got.field("Retry-After") != "" {
				t.Errorf("%s: %d %s, Retry-After %q", call.URL, got.status, got.body, got.field("Retry-After"))
			}
			checkMistakes(t, got.mistakes(t), []string{"#/cost: is at most 20"})
		}
	}
}

func TestTheLimiterGetsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{decide: func(ctx context.Context, _ quota.Request) (quota.Decision, error) {
			<-ctx.Done()
			return quota.Decision{}, ctx.Err()
		}}
		start := time.Now()
		got := serve(data(t, options(f)), request("POST", "/v1/check", `{"tenant":"a"}`))
		if took := time.Since(start); took != httpapi.DefaultDeadline {
			t.Errorf("took %v, want %v", took, httpapi.DefaultDeadline)
		}
		if got.status != 503 || got.field("Retry-After") != "1" {
			t.Errorf("%d, Retry-After %q", got.status, got.field("Retry-After"))
		}
	})
}
