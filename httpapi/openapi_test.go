package httpapi_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

// document is openapi.yaml as generic JSON.
func document(t *testing.T) map[string]any {
	t.Helper()
	served := serve(data(t, options(&fake{})), request("GET", "/v1/openapi.yaml", ""))
	if served.field("Content-Type") != "application/yaml" {
		t.Errorf("Content-Type %q", served.field("Content-Type"))
	}
	text, err := yaml.YAMLToJSON([]byte(served.body))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// at walks a JSON pointer.
func at(t *testing.T, doc map[string]any, pointer string) any {
	t.Helper()
	var v any = doc
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

// schemaErrors checks a value against a schema. It fails on a keyword that it
// does not know, which would be a promise that no test keeps.
func schemaErrors(t *testing.T, doc map[string]any, schema, value any, where string) (errs []string) {
	t.Helper()
	wrong := func(format string, args ...any) { errs = append(errs, where+": "+fmt.Sprintf(format, args...)) }
	s, _ := schema.(map[string]any)
	object, _ := value.(map[string]any)
	for keyword, rule := range s {
		switch keyword {
		case "$ref":
			errs = append(errs, schemaErrors(t, doc, at(t, doc, rule.(string)), value, where)...)
		case "oneOf":
			matched := 0
			for _, branch := range rule.([]any) {
				if len(schemaErrors(t, doc, branch, value, where)) == 0 {
					matched++
				}
			}
			if matched != 1 {
				wrong("%d of oneOf match", matched)
			}
		case "type":
			if !hasType(value, rule.(string)) {
				wrong("%v is no %s", value, rule)
			}
		case "const":
			if fmt.Sprint(value) != fmt.Sprint(rule) {
				wrong("%v is not %v", value, rule)
			}
		case "enum":
			if !slices.ContainsFunc(rule.([]any), func(e any) bool { return fmt.Sprint(e) == fmt.Sprint(value) }) {
				wrong("%v is none of %v", value, rule)
			}
		case "minimum":
			if n, err := strconv.ParseFloat(fmt.Sprint(value), 64); err != nil || n < rule.(float64) {
				wrong("%v is below %v", value, rule)
			}
		case "required":
			for _, name := range rule.([]any) {
				if _, ok := object[name.(string)]; !ok {
					wrong("no %v", name)
				}
			}
		case "properties", "additionalProperties":
			properties, _ := s["properties"].(map[string]any)
			for name, member := range object {
				switch {
				case keyword == "properties" && properties[name] != nil:
					errs = append(errs, schemaErrors(t, doc, properties[name], member, where+"/"+name)...)
				case rule == false && properties[name] == nil:
					wrong("%s is not in the schema", name)
				}
			}
		case "items":
			list, _ := value.([]any)
			for i, item := range list {
				errs = append(errs, schemaErrors(t, doc, rule, item, fmt.Sprintf("%s/%d", where, i))...)
			}
		case "description", "pattern", "minLength", "maxLength", "minItems", "maxItems", "maximum", "maxProperties": // of requests
		default:
			t.Fatalf("%s: unknown keyword %s", where, keyword)
		}
	}
	return errs
}

func hasType(value any, want string) bool {
	switch v := value.(type) {
	case map[string]any:
		return want == "object"
	case []any:
		return want == "array"
	case string:
		return want == "string"
	case bool:
		return want == "boolean"
	case json.Number:
		return want == "number" || want == "integer" && !strings.ContainsAny(v.String(), ".eE")
	}
	return false
}

// The document has every endpoint and no other, except pprof, which is for Go's
// own tools; all its references resolve.
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
	for path, ops := range at(t, doc, "#/paths").(map[string]any) {
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
	resolve(t, doc, doc)
}

func resolve(t *testing.T, doc map[string]any, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			at(t, doc, ref)
		}
		for _, member := range v {
			resolve(t, doc, member)
		}
	case []any:
		for _, item := range v {
			resolve(t, doc, item)
		}
	}
}

// Real answers, each held against the schema that the document has for its
// path, method, status and media type.
func TestAnswersMatchTheDocument(t *testing.T) {
	doc := document(t)
	o := options(&fake{decide: func(ctx context.Context, r quota.Request) (quota.Decision, error) {
		switch r.Tenant {
		case "full":
			return denied(r), nil
		case "closed":
			return closed(ctx, r)
		case "busy":
			return shed(ctx, r)
		case "lost":
			return fails(ctx, r)
		case "dear":
			return refuses(quota.FaultCost, "/cost", "is at most 600")(ctx, r)
		case "none":
			return quota.Decision{Allowed: true, Policy: "standard"}, nil
		case "observed":
			return observed(ctx, r)
		}
		d := allowed(r)
		if r.Explain {
			d.Explanation = &quota.Explanation{Region: "local", ConfigHash: "x", Limits: []quota.LimitExplanation{{Name: "burst"}}}
		}
		return d, nil
	}})
	notReady := o
	notReady.Ready = func() (bool, []string) { return false, []string{"draining"} }
	guarded := o
	guarded.Settings = with(&httpapi.Settings{Access: tokens(t)})
	forward := o
	forward.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth()})
	batch := `{"checks":[{"tenant":"a"},{"tenant":"full"},{"tenant":"closed"},{"tenant":"busy"},{"tenant":"lost"},{"tenant":"dear"},{"tenant":""},{"tenant":"observed"},{"tenant":"none"}]}`
	api, guardedAPI, gateway := data(t, o), data(t, guarded), data(t, forward)
	guardedToken := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Regiond-Token", "s3cret")
		guardedAPI.ServeHTTP(w, r)
	})
	many := o
	many.ResetEverywhere = func(_ context.Context, tenant string) ([]quota.RegionReset, error) {
		if tenant == "lost" {
			return nil, errors.New("no store")
		}
		return []quota.RegionReset{{Region: "a", Result: quota.ResetCleared, BurntMS: 1500}, {Region: "b", Result: quota.ResetFailed}, {Region: "c", Result: quota.ResetUnreached}}, nil
	}
	ops, unreadyOps, guardedOps, manyOps := admin(t, o), admin(t, notReady), admin(t, guarded), admin(t, many)
	rows := []struct {
		h            http.Handler
		method, path string // path as in the document, "" where it is the target
		target, body string
		status       int
	}{
		{api, "post", "", "/v1/check", `{"tenant":"a"}`, 200},
		{api, "post", "/v1/check", "/v1/check?explain=1", `{"tenant":"a"}`, 200},
		{api, "post", "", "/v1/check", `{"tenant":"observed"}`, 200},
		{api, "post", "", "/v1/check", `{"tenant":"none"}`, 200},
		{api, "post", "", "/v1/check", `{"tenant":"full"}`, 429},
		{api, "post", "", "/v1/check", `{"tenant":"dear","cost":601}`, 422},
		{api, "post", "", "/v1/check", `{"tenant":"a","cost":0}`, 400},
		{api, "post", "", "/v1/check", `{"tenant":"closed"}`, 503},
		{api, "post", "", "/v1/check", `{"tenant":"busy"}`, 503},
		{api, "post", "", "/v1/check", `{"tenant":"lost"}`, 503},
		{api, "post", "", "/v1/check", strings.Repeat(" ", 70000), 413},
		{guardedAPI, "post", "", "/v1/check", `{"tenant":"a"}`, 401},
		{api, "post", "", "/v1/check:batch", batch, 200},
		{api, "post", "", "/v1/check:batch", `{"checks":[]}`, 400},
		{api, "post", "", "/v1/check:batch", `{"checks":[` + strings.Repeat(`{"tenant":""},`, 99) + `{"tenant":""}]}`, 200},
		{api, "post", "", "/v1/report", `{"tenant":"full"}`, 200},
		{api, "post", "", "/v1/report", `{"tenant":"lost"}`, 503},
		{api, "post", "", "/v1/report", `{"tenant":"busy"}`, 503},
		{api, "post", "", "/v1/reserve", `{"tenant":"a","amount":100,"ttl_ms":300000}`, 200},
		{api, "post", "", "/v1/reserve", `{"tenant":"a","amount":0}`, 200},
		{api, "post", "", "/v1/reserve", `{"tenant":"full","amount":100}`, 429},
		{api, "post", "", "/v1/reserve", `{"tenant":"dear","amount":601}`, 422},
		{api, "post", "", "/v1/reserve", `{"tenant":"a"}`, 400},
		{api, "post", "", "/v1/reserve", `{"tenant":"a","amount":-1}`, 400},
		{api, "post", "", "/v1/reserve", `{"tenant":"closed","amount":1}`, 503},
		{guardedAPI, "post", "", "/v1/reserve", `{"tenant":"a","amount":1}`, 401},
		{api, "post", "", "/v1/reserve:batch", `{"reservations":[{"tenant":"a","amount":1},{"tenant":"full","amount":1},{"tenant":"dear","amount":601},{"amount":1},{"tenant":"a"}]}`, 200},
		{api, "post", "", "/v1/settle", `{"reservation":"sealed-a","actual":130}`, 200},
		{api, "post", "", "/v1/settle", `{"reservation":"sealed-again","actual":0}`, 200},
		{api, "post", "", "/v1/settle", `{"reservation":"sealed-a"}`, 400},
		{api, "post", "", "/v1/settle", `{"reservation":"guessed","actual":1}`, 404},
		{api, "post", "", "/v1/settle", `{"reservation":"sealed-over","actual":1}`, 410},
		{api, "post", "", "/v1/settle", `{"reservation":"sealed-busy","actual":1}`, 503},
		{api, "post", "", "/v1/settle:batch", `{"settlements":[{"reservation":"sealed-a","actual":1},{"reservation":"guessed","actual":1},{"reservation":"sealed-over","actual":1},{"reservation":"sealed-busy","actual":1},{}]}`, 200},
		{api, "post", "", "/v1/extend", `{"reservation":"sealed-a","ttl_ms":1000}`, 200},
		{api, "post", "", "/v1/extend", `{"reservation":"sealed-a","ttl_ms":0}`, 400},
		{api, "post", "", "/v1/extend", `{"reservation":"guessed","ttl_ms":1000}`, 404},
		{api, "post", "", "/v1/extend", `{"reservation":"sealed-over","ttl_ms":1000}`, 410},
		{api, "post", "", "/v1/extend:batch", `{"extensions":[{"reservation":"sealed-a","ttl_ms":1000},{"reservation":"guessed","ttl_ms":1}]}`, 200},
		{api, "get", "/v1/usage/{tenant}", "/v1/usage/busy", "", 503},
		{api, "get", "/v1/usage/{tenant}", "/v1/usage/full", "", 200},
		{api, "get", "/v1/usage", "/v1/usage", "", 200},
		{api, "get", "/v1/usage", "/v1/usage?cursor=7&policy=standard&limit=10000", "", 200},
		{api, "get", "/v1/usage", "/v1/usage?cursor=old", "", 400},
		{api, "get", "/v1/usage", "/v1/usage?limit=10001", "", 400},
		{api, "get", "/v1/usage", "/v1/usage?cursor=away", "", 503},
		{api, "get", "/v1/usage/{tenant}", "/v1/usage/a?x", "", 400},
		{api, "get", "", "/v1/authz", "", 403},
		{gateway, "get", "/v1/authz/{path}", "/v1/authz/status", "", 200},
		{gateway, "get", "/v1/authz/{path}", "/v1/authz/x", "", 429},
		{gateway, "get", "", "/v1/authz", "", 403},
		{gateway, "get", "", "/v1/authz-nginx", "", 403},
		{ops, "get", "", "/healthz", "", 200},
		{ops, "get", "", "/readyz", "", 200},
		{unreadyOps, "get", "", "/readyz", "", 503},
		{ops, "get", "", "/v1/regions", "", 200},
		{guardedOps, "get", "", "/v1/regions", "", 401},
		{ops, "get", "/v1/regions", "/v1/regions", "", 421},
		{ops, "post", "/v1/reopen/{region}", "/v1/reopen/eu", "", 204},
		{guardedOps, "post", "/v1/reopen/{region}", "/v1/reopen/eu", "", 401},
		{ops, "get", "", "/v1/top", "", 200},
		{ops, "get", "/v1/top", "/v1/top?by=cost", "", 400},
		{guardedOps, "get", "", "/v1/top", "", 401},
		{guardedToken, "post", "/v1/check", "/v1/check?explain=1", `{"tenant":"a"}`, 403},
		{ops, "delete", "/v1/usage/{tenant}", "/v1/usage/a", "", 204},
		{ops, "get", "/v1/overrides", "/v1/overrides?limit=1&cursor=a", "", 200},
		{ops, "get", "/v1/overrides", "/v1/overrides?limit=0", "", 400},
		{guardedOps, "get", "", "/v1/overrides", "", 401},
		{ops, "get", "/v1/overrides/{tenant}", "/v1/overrides/a", "", 200},
		{ops, "get", "/v1/overrides/{tenant}", "/v1/overrides/none", "", 404},
		{ops, "get", "/v1/overrides/{tenant}", "/v1/overrides/lost", "", 503},
		{ops, "get", "/v1/overrides/{tenant}/history", "/v1/overrides/a/history", "", 200},
		{ops, "put", "/v1/overrides/{tenant}", "/v1/overrides/a", `{"limits":{"burst":0},"enforcement":"observe","expires_at":"2030-01-01T00:00:00Z","reason":"x"}`, 200},
		{ops, "put", "/v1/overrides/{tenant}", "/v1/overrides/a", `{"limits":{"burst":-1}}`, 400},
		{ops, "put", "/v1/overrides/{tenant}", "/v1/overrides/bad", `{"policy":"x"}`, 422},
		{ops, "put", "/v1/overrides/{tenant}", "/v1/overrides/lost", `{"policy":"x"}`, 503},
		{ops, "put", "/v1/overrides/{tenant}", "/v1/overrides/changed", `{"policy":"x"}`, 412},
		{ops, "delete", "/v1/overrides/{tenant}", "/v1/overrides/a", "", 200},
		{ops, "delete", "/v1/overrides/{tenant}", "/v1/overrides/none", "", 404},
		{ops, "delete", "/v1/usage/{tenant}", "/v1/usage/%20", "", 400},
		{ops, "delete", "/v1/usage/{tenant}", "/v1/usage/a?everywhere=1", "", 409},
		{manyOps, "delete", "/v1/usage/{tenant}", "/v1/usage/a?everywhere=1", "", 200},
		{manyOps, "delete", "/v1/usage/{tenant}", "/v1/usage/a?everywhere=yes", "", 400},
		{manyOps, "delete", "/v1/usage/{tenant}", "/v1/usage/lost?everywhere=1", "", 503},
	}
	for _, row := range rows {
		t.Run(fmt.Sprintf("%s %s %s %d", row.method, row.target, row.body[:min(20, len(row.body))], row.status), func(t *testing.T) {
			r := request(strings.ToUpper(row.method), row.target, row.body, "X-Tenant: full")
			if row.status == http.StatusMisdirectedRequest {
				r.Host = "evil.example"
			}
			got := serve(row.h, r)
			if got.status != row.status {
				t.Fatalf("status %d: %s", got.status, got.body)
			}
			path := cmp.Or(row.path, row.target)
			response := at(t, doc, "#/paths/"+strings.ReplaceAll(path, "/", "~1")+"/"+row.method+"/responses/"+fmt.Sprint(row.status)).(map[string]any)
			if ref, ok := response["$ref"].(string); ok {
				response = at(t, doc, ref).(map[string]any)
			}
			content, ok := response["content"].(map[string]any)
			if !ok {
				if got.body != "" {
					t.Errorf("the document has no body, the answer has %q", got.body)
				}
				return
			}
			media, ok := content[got.field("Content-Type")].(map[string]any)
			if !ok {
				t.Fatalf("the document has no %q", got.field("Content-Type"))
			}
			for _, e := range schemaErrors(t, doc, media["schema"], any(got.json(t)), "") {
				t.Error(e)
			}
		})
	}
}

// Each example of the document is what its schema describes.
func TestExamplesMatchTheDocument(t *testing.T) {
	doc, examples := document(t), 0
	var walk func(v any, where string)
	walk = func(v any, where string) {
		switch v := v.(type) {
		case map[string]any:
			if example, ok := v["example"]; ok && v["schema"] != nil {
				examples++
				text, err := json.Marshal(example)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range schemaErrors(t, doc, v["schema"], any(reply{body: string(text)}.json(t)), where) {
					t.Error(e)
				}
			}
			for name, member := range v {
				walk(member, where+"/"+name)
			}
		case []any:
			for i, item := range v {
				walk(item, fmt.Sprint(where, "/", i))
			}
		}
	}
	walk(doc, "")
	if examples < 10 {
		t.Errorf("only %d examples", examples)
	}
}

// The checker finds each kind of error.
func TestSchemaChecker(t *testing.T) {
	doc := document(t)
	const limit = `{"name":"a","limit":1,"window_ms":1,"remaining":0,"scope":"region","ceiling":0}`
	for value, ok := range map[string]bool{
		limit: true,
		strings.Replace(limit, `"remaining":0`, `"remaining":-1`, 1): false,
		strings.Replace(limit, `"limit":1`, `"limit":1.5`, 1):        false,
		strings.Replace(limit, `"region"`, `"all"`, 1):               false,
		strings.Replace(limit, `"a"`, `7`, 1):                        false,
		strings.Replace(limit, `,"ceiling":0`, ``, 1):                false,
		strings.Replace(limit, `0}`, `0,"x":1}`, 1):                  false,
	} {
		got := schemaErrors(t, doc, at(t, doc, "#/components/schemas/Limit"), any(reply{body: value}.json(t)), "")
		if (len(got) == 0) != ok {
			t.Errorf("%s: %v", value, got)
		}
	}
}
