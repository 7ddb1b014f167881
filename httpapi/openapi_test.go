package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

// contract is openapi.yaml as generic JSON, and its schemas.
type contract struct {
	doc     map[string]any
	schemas *jsonschema.Compiler
}

func document(t *testing.T) *contract {
	t.Helper()
	served := serve(data(t, options(&fake{})), request("GET", "/v1/openapi.yaml", ""))
	if served.field("Content-Type") != "application/yaml" {
		t.Errorf("Content-Type %q", served.field("Content-Type"))
	}
	text, err := yaml.YAMLToJSON([]byte(served.body))
	if err != nil {
		t.Fatal(err)
	}
	c := &contract{schemas: jsonschema.NewCompiler()}
	if err := json.Unmarshal(text, &c.doc); err != nil {
		t.Fatal(err)
	}
	if err := c.schemas.AddResource("openapi.json", c.doc); err != nil {
		t.Fatal(err)
	}
	return c
}

// at walks a JSON pointer.
func (c *contract) at(t *testing.T, pointer string) any {
	t.Helper()
	var v any = c.doc
	for _, token := range strings.Split(strings.TrimPrefix(pointer, "#/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		m, ok := v.(map[string]any)
		if !ok || m[token] == nil {
			t.Fatalf("%s: no %s", pointer, token)
		}
		v = m[token]
	}
	return v
}

// below adds a token to a JSON pointer.
func below(pointer, token string) string {
	return pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

// judge holds JSON against the schema at a JSON pointer.
func (c *contract) judge(t *testing.T, pointer, text string) {
	t.Helper()
	schema, err := c.schemas.Compile("openapi.json" + (&url.URL{Fragment: strings.TrimPrefix(pointer, "#")}).String())
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err == nil {
		err = schema.Validate(v)
	}
	if err != nil {
		t.Errorf("%s: %v", text, err)
	}
}

// The document has every endpoint and no other, except pprof, which is for Go's
// own tools.
func TestDocumentHasTheEndpoints(t *testing.T) {
	doc := document(t)
	var want, got []string
	for _, r := range httpapi.Endpoints() {
		method, pattern, _ := strings.Cut(r, " ")
		methods := []string{strings.ToLower(method)}
		if method == "ANY" {
			methods = []string{"get", "head", "post", "put", "patch", "delete", "options", "trace"}
		}
		for _, m := range methods {
			if !strings.HasPrefix(pattern, "/debug/") {
				want = append(want, m+" "+strings.Replace(pattern, "...}", "}", 1))
			}
		}
	}
	for path, ops := range doc.at(t, "#/paths").(map[string]any) {
		for method := range ops.(map[string]any) {
			if method != "parameters" {
				got = append(got, method+" "+path)
			}
		}
	}
	slices.Sort(want)
	want = slices.Compact(want) // both listeners explain
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("openapi.yaml has\n%q, the handlers\n%q", got, want)
	}
}

// A world is what a handler of the table is made with.
type world struct {
	admin  bool
	change func(*httpapi.Options)
}

func worlds(t *testing.T) map[string]world {
	guarded := &httpapi.Settings{Access: access.Access{
		Tokens:      known(t, access.DefaultScopes, "any", "acme tenants=acme", "edge scopes=check", "why scopes=explain", "held scopes=explain tenants=globex"),
		AdminTokens: known(t, access.AdminScopes, "ops", "some tenants=acme", "no scopes=usage", "metrics scopes=metrics"),
	}}
	everywhere := func(o *httpapi.Options) {
		f, _ := o.Limiter.(*fake)
		o.ResetEverywhere = func(_ context.Context, tenant string) ([]quota.RegionReset, error) {
			if f.note("everywhere " + tenant); tenant == "lost" {
				return nil, errors.New("no store")
			}
			return []quota.RegionReset{{Region: "eu", Result: quota.ResetCleared, BurntMS: 1500}, {Region: "us", Result: quota.ResetUnreached}}, nil
		}
	}
	return map[string]world{
		"data":    {false, func(*httpapi.Options) {}},
		"tokens":  {false, func(o *httpapi.Options) { o.Settings = with(guarded) }},
		"gateway": {false, func(o *httpapi.Options) { o.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth()}) }},
		"ops":     {true, func(o *httpapi.Options) { o.Address = "127.0.0.1:9090" }},
		"unready": {true, func(o *httpapi.Options) { o.Ready = func() (bool, []string) { return false, []string{"draining"} } }},
		"alone":   {true, func(o *httpapi.Options) { o.Reopen = nil }},
		"guarded": {true, func(o *httpapi.Options) { o.Settings = with(guarded); everywhere(o) }},
		"public":  {true, func(o *httpapi.Options) { o.Address = "0.0.0.0:9090" }},
		"shown":   {true, func(o *httpapi.Options) { o.Address = "0.0.0.0:9090"; o.Settings = with(guarded) }},
	}
}

// TestAnswersMatchTheDocument is the table of calls and their answers. Each answer is held against the schema that the document has
// for its path, method, status and media type; and what is refused is not decided.
func TestAnswersMatchTheDocument(t *testing.T) {
	doc := document(t)
	const (
		check, batch, reserve, settle, extend = "POST /v1/check", "POST /v1/check:batch", "POST /v1/reserve", "POST /v1/settle", "POST /v1/extend"
		reset, everywhere, overrides, etag    = "DELETE /v1/usage/", "?everywhere=1", " /v1/overrides/", `"2.1700000000000000.local"`
		override                              = `{"tenant":"a","version":"2.1700000000000000.local","policy":"gold","limits":{"burst":40},"expires_at":"2030-03-17T17:46:40Z",` +
			`"by":"ops","reason":"launch","set_at":"2023-11-14T22:13:20Z"}`
		dims = "there are: policy, cost, explain, dim.<name>"
	)
	hundred := func(element string) string { return `{"checks":[` + strings.Repeat(element+",", 99) + element + `]}` }
	all := worlds(t)
	for world, rows := range map[string][]struct {
		call, body string
		header     string // lines, or a token
		status     int
		has        string // parts of the answer, and of what the limiter was asked
	}{
		"data": {
			{check, `{"tenant":"a"}`, "", 200, "[check a cost=1]"},
			{
				check + "?explain=1", `{"cost": 7, "dimensions": {"user": "a+b@c", "\u0069p": "192.0.2.1"}, "policy": "gold", "tenant": "auth0|x"}`,
				"Idempotency-Key: k-1\nContent-Type: application/json; charset=UTF-8", 200, "[check auth0|x cost=7 ip=192.0.2.1 user=a+b@c policy=gold key=k-1 explain]",
			},
			{check, `{"tenant":"a"}`, "Content-Type: application/x-www-form-urlencoded", 200, ""}, // curl's default
			{check, `{"tenant":"a"}`, "Content-Type: application/json\nOrigin: http://x\nSec-Fetch-Site: cross-site", 200, ""},
			{check, `{"tenant":"a"}` + strings.Repeat(" ", httpapi.MaxBody-14), "", 200, ""},
			{check, `{"tenant":"dear","cost":601}`, "", 422, "problem:cost-exceeds-limit … #/cost … is at most 600"},
			{check, `{"tenant":"reused"}`, "", 422, "problem:idempotency-key-reuse"},
			{check, `{"tenant":"refused"}`, "", 400, "problem:invalid-request … #/cost … is at most 600"},
			{batch, hundred(`{"tenant":""}`), "", 200, ""},
			{batch, hundred(`{"tenant":"t"}`), "", 200, ""},
			{"POST /v1/check%3Abatch", "", "", 400, "the body is empty"}, // the same call as with a colon
			{"POST /v1/check%3abatch", "", "", 400, "the body is empty"},
			{"POST /v1/report", `{"tenant":"dear"}`, "", 422, "#/cost"},
			{"POST /v1/report", `{"tenant":"lost"}`, "", 503, ""},
			{reserve, `{"tenant":"a","amount":100,"ttl_ms":300000}`, "", 200, ""},
			{reserve, `{"tenant":"a","amount":0}`, "", 200, ""},
			{reserve, `{"tenant":"full","amount":100}`, "", 429, ""},
			{reserve, `{"tenant":"dear","amount":601}`, "", 422, ""},
			{reserve, `{"tenant":"a"}`, "", 400, ""},
			{reserve, `{"tenant":"closed","amount":1}`, "", 503, ""},
			{reserve + ":batch", `{"reservations":[{"tenant":"a","amount":1},{"tenant":"full","amount":1},{"tenant":"dear","amount":601},{"amount":1},{"tenant":"a"}]}`, "", 200, ""},
			{settle, `{"reservation":"sealed-a","actual":130}`, "", 200, ""},
			{settle, `{"reservation":"sealed-again","actual":0}`, "", 200, ""},
			{settle, `{"reservation":"sealed-a"}`, "", 400, ""},
			{settle, `{"reservation":"guessed","actual":1}`, "", 404, ""},
			{settle, `{"reservation":"sealed-over","actual":1}`, "", 410, ""},
			{settle, `{"reservation":"sealed-busy","actual":1}`, "", 503, ""},
			{settle + ":batch", `{"settlements":[{"reservation":"sealed-a","actual":1},{"reservation":"guessed","actual":1},{"reservation":"sealed-over","actual":1},{"reservation":"sealed-busy","actual":1},{}]}`, "", 200, ""},
			{extend, `{"reservation":"sealed-a","ttl_ms":1000}`, "", 200, ""},
			{extend + "?explain=1", `{"reservation":"sealed-a","ttl_ms":1000}`, "", 400, "no parameters"},
			{extend, `{"reservation":"guessed","ttl_ms":1000}`, "", 404, ""},
			{extend, `{"reservation":"sealed-over","ttl_ms":1000}`, "", 410, ""},
			{extend + ":batch", `{"extensions":[{"reservation":"sealed-a","ttl_ms":1000},{"reservation":"guessed","ttl_ms":1}]}`, "", 200, ""},
			{"GET /v1/usage/dear?cost=21", "", "", 422, "#/cost"},
			{"GET /v1/usage/a%2Fb%7Cc?policy=gold&cost=2&dim.user=x%2By&dim.ip=%3A%3A1&explain=0", "", "", 200, "[peek a/b|c cost=2 ip=::1 user=x+y policy=gold usage]"},
			{"GET /v1/usage/..", "", "", 200, "[peek .."}, // a tenant may be called so
			{"HEAD /v1/usage/a", "", "", 200, ""},
			{"GET /v1/usage", "", "", 200, "[usage {  1000}]"},
			{"GET /v1/usage?limit=5&policy=pro&cursor=0.77", "", "", 200, "[usage {0.77 pro 5}]"},
			{"GET /v1/usage?cursor=refused", "", "", 400, "#/cursor"},
			{"GET /v1/usage?limit=10001&policy=Pro&cursor=", "", "", 400, "#/cursor … #/limit … #/policy"},
			{"GET /v1/usage?limit=1&limit=2&tenant=a", "", "", 400, "#/limit … #/tenant"},
			{"GET /v1/usage?limit=0", "", "", 400, "between 1 and 10000 rows"},
			{"GET /v1/usage?cursor=away", "", "", 503, ""},
			{"GET /v1/usage/a?x", "", "", 400, ""},
			{"GET /v1/explain/a?policy=gold&cost=3&dim.user=42", "", "", 200, told + " … [peek a cost=3 user=42 policy=gold explain]"},
			{"GET /v1/explain/a?window=1m", "", "", 400, dims},
			{"GET /v1/explain/a%20b", "", "", 400, "must be printable ASCII"},
			{"HEAD /v1/openapi.yaml", "", "", 200, ""},
			{"HEAD /v1/check", "", "", 405, ""},
			{"OPTIONS /v1/check", "", "", 405, "Use POST."},
			{"POST /v1/usage/a", "", "", 405, "Use GET, HEAD."},
			{"DELETE /v1/usage/a", "", "", 405, "Use GET, HEAD. The admin listener has this call"},
			{"POST /v1/check/", "", "", 404, ""},
			{"POST //v1/check", "", "", 404, ""},
			{"POST /v1/check%253Abatch", "", "", 404, ""},
			{"POST /v1/%63heck", "", "", 404, ""},
			{"GET /v1/usage/a/b", "", "", 404, ""},
			{"GET /v1/usage/", "", "", 404, ""},
			{"GET /v1/authzx", "", "", 404, ""},
			{"GET /healthz", "", "", 404, "The admin listener has this call"},
		},
		"tokens": {
			{check, `{"tenant":"a"}`, "", 401, ""},
			{check + "?explain=1", `{"tenant":"a"}`, "any", 403, ""},
			{reserve, `{"tenant":"a","amount":1}`, "", 401, ""},
			{"GET /v1/openapi.yaml", "", "", 200, ""},
			{"GET /v1/explain/a", "", "why", 200, told},
			{"GET /v1/explain/a", "", "any", 403, "the caller needs scope explain"},
			{"GET /v1/explain/a", "", "held", 403, "the caller is held to other tenants"},
			// A reservation of a tenant that the caller may not name is none, and a settle, which may charge more than was held, needs the
			// scope of reports.
			{settle, `{"reservation":"sealed-acme","actual":1}`, "acme", 200, `"charged":1`},
			{settle, `{"reservation":"sealed-globex","actual":1}`, "acme", 404, "reservation-unknown"},
			{extend, `{"reservation":"sealed-globex","ttl_ms":1}`, "acme", 404, "reservation-unknown"},
			{settle + ":batch", `{"settlements":[{"reservation":"sealed-globex","actual":1}]}`, "acme", 200, `"status":404`},
			{reserve, `{"tenant":"globex","amount":1}`, "acme", 403, "problem:forbidden"},
			{reserve + ":batch", `{"reservations":[{"tenant":"globex","amount":1}]}`, "acme", 200, `"status":403`},
			{reserve, `{"tenant":"acme","amount":1}`, "edge", 200, `"reservation":{"id":"sealed-acme"`},
			{extend, `{"reservation":"sealed-acme","ttl_ms":1}`, "edge", 200, `"expires_in_ms":1`},
			{settle, `{"reservation":"sealed-acme","actual":1}`, "edge", 403, "scope report"},
			{settle + ":batch", `{"settlements":[{"reservation":"sealed-acme","actual":1}]}`, "edge", 403, "scope report"},
		},
		"gateway": {
			{"GET /v1/authz/status", "", "X-Tenant: full", 200, ""},
			{"GET http://h/v1/authz/status", "", "X-Tenant: full", 200, "X-Regiond-Decision: allow"},
			{"POST /v1/authz//x/../login", "", "X-Tenant: full", 429, "X-Regiond-Decision: deny"}, // and no redirect
		},
		"ops": {
			{"GET /healthz", "", "", 200, `{"status":"ok"}`},
			{"GET /readyz", "", "", 200, `{"ready":true,"reasons":[]}`},
			{"GET /metrics", "", "", 200, "figures 1"},
			{"GET /v1/regions", "", "", 200, `{"region":"local"}`},
			{"GET /v1/regions", "", "Host: evil.example", 421, ""},
			{"GET /", "", "", 200, "page"},
			{"GET /page/style.css", "", "", 200, "page"},
			{"GET /v1/events", "", "", 200, "event: state"},
			{"POST /demo/cut/eu-west", "", "", 404, "Only `regiond demo`"},
			{"GET /debug/pprof/", "", "", 200, ""},
			{"GET /debug/pprof/cmdline", "", "", 200, ""},
			{"GET /debug/pprof/goroutine?debug=1", "", "", 200, ""},
			{"GET /debug/pprof/symbol", "", "", 200, ""},
			{"POST /debug/pprof/symbol", "", "", 200, ""},
			{"GET /debug/pprof/nothing", "", "", 404, ""},
			{"POST /healthz", "", "", 405, ""},
			{"GET /v1/usage/acme", "", "", 405, "The data listener has this call"},
			{check, "", "", 404, "The data listener has this call"},
			{"GET /v1/explain/a", "", "", 200, told},
			{"POST /v1/reopen/eu", "", "", 204, "[reopen eu]"},
			{"POST /v1/reopen/us", "", "", 409, "nothing was lost"},
			{"POST /v1/reopen/lost", "", "", 503, "not known: redis is away"},
			{"GET /v1/top", "", "", 200, "[top {denied  1m0s region 20}]"},
			{"GET /v1/top?by=used&policy=gold&window=1h&scope=global&limit=1000", "", "", 200, "[top {used gold 1h0m0s global 1000}]"},
			{"GET /v1/top?by=denied&window=60s&scope=region&limit=1", "", "", 200, "[top {denied  1m0s region 1}]"},
			{"GET /v1/top?by=cost", "", "", 400, `"#/by","detail":"\"cost\" is not one of denied, used`},
			{"GET /v1/top?scope=eu", "", "", 400, `"#/scope","detail":"\"eu\" is not one of region, global`},
			{"GET /v1/top?window=5m", "", "", 400, "must be 1m or 1h, is 5m"},
			{"GET /v1/top?window=1", "", "", 400, "must be 1m or 1h"},
			{"GET /v1/top?limit=0", "", "", 400, "must be 1 to 1000 rows"},
			{"GET /v1/top?limit=1001", "", "", 400, "must be 1 to 1000 rows"},
			{"GET /v1/top?policy=refused", "", "", 400, `\"refused\" is not a policy`},
			{"GET /v1/top?policy=", "", "", 400, "#/policy"},
			{"GET /v1/top?by=used&by=used", "", "", 400, "is duplicated"},
			{"GET /v1/top?tenant=acme", "", "", 400, "there are: by, policy, window, scope, limit"},
			{reset + "a%2Fb", "", "", 204, "[reset a/b"},
			{reset + "lost", "", "", 503, "[reset lost"},
			{reset + "refused", "", "", 400, "#/tenant"},
			{reset + "a%20b", "", "", 400, ""},
			{reset + "acme?policy=gold", "", "", 400, "there is only everywhere=1"},
			{reset, "", "", 404, ""},
			{reset + "a/b", "", "", 404, ""},
			{reset + "a" + everywhere, "", "", 409, "problem:no-other-region"},
			{"GET" + overrides + "a", "", "", 200, override + " … Etag: " + etag},
			{"GET" + overrides + "none", "", "", 404, "no-override"},
			{"GET" + overrides + "lost", "", "", 503, ""},
			{"GET" + overrides + "a?x=1", "", "", 400, "no parameters"},
			{"GET" + overrides + "a%20b", "", "", 400, "#/tenant"},
			{"GET /v1/overrides?cursor=a&limit=7", "", "", 200, `"next_cursor":"b7"`},
			{"GET /v1/overrides?limit=1001", "", "", 400, "between 1 and 1000"},
			{"GET /v1/overrides?limit=0", "", "", 400, "between 1 and 1000"},
			{"GET" + overrides + "a/history", "", "", 200, `{"old":{"tenant":"a","version":"29.`},
			{"PUT" + overrides + "none", `{"limits":{"burst":40}}`, "", 200, `{"tenant":"none","version":"1.1700000000000000.local","regions":{"local":"applied","us":"not reached"},"ignored":["daily"]}`},
			{"PUT" + overrides + "a", `{"limits":{"burst":0},"enforcement":"observe","expires_at":"2030-01-01T00:00:00Z","reason":"x"}`, "If-Match: " + etag, 200, "Etag: " + etag},
			{"PUT" + overrides + "a", `{}`, "If-Match: x", 400, "#/If-Match"},
			{"PUT" + overrides + "a", `{}`, "If-None-Match: x", 400, "#/If-None-Match"},
			{"PUT" + overrides + "a", `{}`, "If-None-Match: *\nIf-Match: " + etag, 400, "send one of them"},
			{"PUT" + overrides + "changed", `{}`, `If-Match: "1.1.local"`, 412, "is version 2.1700000000000000.local now"},
			{"PUT" + overrides + "changed", `{}`, "If-None-Match: *", 412, "wants none"},
			{"PUT" + overrides + "none", `{}`, "If-Match: " + etag, 412, "has no override any more"},
			{"PUT" + overrides + "bad", `{"policy":"x"}`, "", 422, "override-refused"},
			{"PUT" + overrides + "lost", `{"policy":"x"}`, "", 503, "not known"},
			{"PUT" + overrides + "a", `{"limits":{"burst":1.5}}`, "", 400, "#/limits"},
			{"PUT" + overrides + "a", `{"limits":{"burst":-1}}`, "", 400, "#/limits"},
			{"PUT" + overrides + "a", `{"limits":{"burst":1,"burst":2}}`, "", 400, "is duplicated"},
			{"PUT" + overrides + "a", `{"limit":{"burst":1}}`, "", 400, "not a member here"},
			{"PUT" + overrides + "a", `{"expires_at":"tomorrow"}`, "", 400, "RFC 3339"},
			{"PUT" + overrides + "a", `{"enforcement":"perhaps"}`, "", 400, "not one of enforce, observe"},
			{"DELETE" + overrides + "a", "", "", 200, `"regions" … Etag: ` + etag},
			{"DELETE" + overrides + "none", "", "", 404, "no-override"},
		},
		"unready": {{"GET /readyz", "", "", 503, `{"ready":false,"reasons":["draining"]}`}},
		"alone":   {{"POST /v1/reopen/eu", "", "", 409, "nothing that a loss could close"}},
		"public":  {{"GET /v1/explain/a", "", "", 403, "Tenants are shown as hashes"}},
		"shown":   {{"GET /v1/explain/a", "", "ops", 200, told}},
		"guarded": {
			{"GET /healthz", "", "", 200, ""},
			{"GET /readyz", "", "", 200, ""},
			{"GET /metrics", "", "", 401, ""},
			{"GET /v1/regions", "", "", 401, ""},
			{"GET /debug/pprof/", "", "", 401, ""},
			{"GET /v1/explain/a", "", "", 401, ""},
			{"POST /v1/reopen/eu", "", "", 401, ""},
			{"GET /v1/top", "", "", 401, ""},
			{"GET /v1/top", "", "some", 403, "held to tenants"},
			{"GET /v1/overrides", "", "", 401, ""},
			// A reset of all regions reaches neither this region's limiter nor another tenant.
			{reset + "a%2Fb" + everywhere, "", "ops", 200, `{"regions":[{"region":"eu","result":"cleared","burnt_ms":1500},{"region":"us","result":"unreached"}]} … [everywhere a/b]`},
			{reset + "acme" + everywhere, "", "some", 200, "[everywhere acme]"},
			{reset + "globex" + everywhere, "", "some", 403, ""},
			{reset + "acme" + everywhere, "", "no", 403, ""},
			{reset + "acme" + everywhere, "", "other", 401, ""},
			{reset + "lost" + everywhere, "", "ops", 503, "[everywhere lost]"},
			{reset + "a%20b" + everywhere, "", "ops", 400, ""},
			{reset + "acme?everywhere=0", "", "ops", 400, ""},
			{reset + "acme" + everywhere + "&everywhere=1", "", "ops", 400, ""},
			{reset + "acme" + everywhere + "&policy=gold", "", "ops", 400, ""},
			{reset + "acme?Everywhere=1", "", "ops", 400, ""},
			{"POST /session", `{"token":"wrong"}`, "", 401, ""},
			{"POST /session", `{"token":""}`, "", 401, ""},
			{"POST /session", `{"token":"` + hashOf("ops") + `"}`, "", 401, ""},
			{"POST /session", `token=ops`, "", 401, ""},
			{"POST /session", `{"token":"ops"}` + strings.Repeat(" ", 5000), "", 401, ""},
			{"POST /session", `{"token":"metrics"}`, "", 403, ""},
			{"POST /session", `{"token":"some"}`, "", 403, ""},
			{"POST /session", `{"token":"ops"}`, "Sec-Fetch-Site: cross-site", 403, ""},
			{"POST /session", `{"token":"ops"}`, "Origin: https://evil.example", 403, ""},
			{"POST /session", `{"token":"ops"}`, "Host: evil.example", 421, ""},
			{"POST /session", `{"token":"ops"}`, "Sec-Fetch-Site: same-origin", 204, "Set-Cookie: "},
		},
	} {
		for _, row := range rows {
			t.Run(fmt.Sprintf("%s %s %.20s %d", world, row.call, row.body, row.status), func(t *testing.T) {
				f := &fake{decide: byTenant, reset: func(_ context.Context, tenant string) error {
					return map[string]error{
						"lost": errors.New("no store"), "refused": &quota.Invalid{Fields: []quota.FieldError{{Pointer: "/tenant", Detail: "is not known"}}},
					}[tenant]
				}}
				o := options(f)
				all[world].change(&o)
				header := strings.Split(row.header, "\n")
				if row.header == "" || !strings.Contains(row.header, ": ") {
					header = []string{"X-Regiond-Token: " + row.header}
				}
				method, target, _ := strings.Cut(row.call, " ")
				r := request(method, target, row.body, header...)
				if host := r.Header.Get("Host"); host != "" {
					r.Host = host
				}
				h := data(t, o)
				if all[world].admin {
					h = admin(t, o)
				}
				got := serve(h, r)
				if got.status != row.status || got.field("Cache-Control") != "no-store" || (got.field("Set-Cookie") != "") != (target == "/session" && row.status == 204) {
					t.Fatalf("%d %v %s, want %d", got.status, got.header, got.body, row.status)
				}
				shown := page(got) + fmt.Sprint(f.asked)
				for part := range strings.SplitSeq(row.has, " … ") {
					if !strings.Contains(shown, part) {
						t.Errorf("no %s in\n%s", part, shown)
					}
				}
				refused := row.status < 409 && row.status >= 400 || row.status == 413 || row.status == 421
				if refused && len(f.asked) > 0 && !strings.Contains(row.call+row.body, "refused") {
					t.Errorf("what was refused was decided: %q", f.asked)
				}
				doc.isDocumented(t, strings.ToLower(method), target, got)
			})
		}
	}
}

// isDocumented holds an answer against the schema of its call, if the document has one.
func (c *contract) isDocumented(t *testing.T, method, target string, got reply) {
	t.Helper()
	if strings.Contains(got.body, "problem:not-found") || got.status == http.StatusMethodNotAllowed {
		return // of no call
	}
	target, _, _ = strings.Cut(target, "?")
	for path, calls := range c.at(t, "#/paths").(map[string]any) {
		pattern := regexp.MustCompile(`\\\{path\\\}`).ReplaceAllString(regexp.QuoteMeta(path), ".*")
		pattern = regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(pattern, "[^/]+")
		call, ok := calls.(map[string]any)[method].(map[string]any)
		if !ok || !regexp.MustCompile("^"+pattern+"$").MatchString(target) {
			continue
		}
		where := below(below("#/paths", path), method) + "/responses/" + fmt.Sprint(got.status)
		response, ok := call["responses"].(map[string]any)[fmt.Sprint(got.status)].(map[string]any)
		if !ok {
			t.Fatalf("the document has no status %d of %s %s", got.status, method, path)
		}
		if ref, ok := response["$ref"].(string); ok {
			where, response = ref, c.at(t, ref).(map[string]any)
		}
		content, ok := response["content"].(map[string]any)
		if !ok && got.body != "" {
			t.Errorf("the document has no body, the answer has %q", got.body)
		}
		media := got.field("Content-Type")
		if content[media] == nil && len(content) > 0 && media != "" {
			t.Fatalf("the document has no %q", media)
		}
		if described, ok := content[media].(map[string]any); ok && described["schema"] != nil && strings.HasSuffix(media, "json") {
			c.judge(t, below(where+"/content", media)+"/schema", got.body)
		}
	}
}

// Each example of the document is what its schema describes, and each reference is of something.
func TestExamplesMatchTheDocument(t *testing.T) {
	doc, examples := document(t), 0
	var walk func(v any, where string)
	walk = func(v any, where string) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				doc.at(t, ref)
			}
			if example, ok := v["example"]; ok && v["schema"] != nil {
				examples++
				text, err := json.Marshal(example)
				if err != nil {
					t.Fatal(err)
				}
				doc.judge(t, where+"/schema", string(text))
			}
			for name, member := range v {
				walk(member, below(where, name))
			}
		case []any:
			for i, item := range v {
				walk(item, fmt.Sprint(where, "/", i))
			}
		}
	}
	walk(doc.doc, "#")
	if examples < 10 {
		t.Errorf("only %d examples", examples)
	}
}
