package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
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

// schemaKeywords are those that the checker knows; another one in the document
// would be a promise that no test keeps.
var schemaKeywords = []string{
	"$ref", "additionalProperties", "const", "description", "enum", "items", "maxItems", "maxLength", "maxProperties",
	"maximum", "minItems", "minLength", "minimum", "oneOf", "pattern", "properties", "required", "type",
}

// schemaErrors holds a value against a schema of the subset in schemaKeywords.
func schemaErrors(t *testing.T, doc map[string]any, schema, value any, where string) (errs []string) {
	t.Helper()
	s, ok := schema.(map[string]any)
	if !ok {
		t.Fatalf("%s: schema is %T", where, schema)
	}
	for keyword := range s {
		if !slices.Contains(schemaKeywords, keyword) {
			t.Fatalf("%s: the checker does not know %s", where, keyword)
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		return schemaErrors(t, doc, at(t, doc, ref), value, where)
	}
	if branches, ok := s["oneOf"].([]any); ok {
		var all []string
		matched := 0
		for i, b := range branches {
			if found := schemaErrors(t, doc, b, value, fmt.Sprintf("%s(%d)", where, i)); len(found) == 0 {
				matched++
			} else {
				all = append(all, found...)
			}
		}
		if matched != 1 {
			errs = append(errs, fmt.Sprintf("%s: %d of oneOf match: %v", where, matched, all))
		}
	}
	if want, ok := s["type"].(string); ok && !hasType(value, want) {
		return append(errs, fmt.Sprintf("%s: %v is no %s", where, value, want))
	}
	if want, ok := s["const"]; ok && fmt.Sprint(value) != fmt.Sprint(want) {
		errs = append(errs, fmt.Sprintf("%s: %v is not %v", where, value, want))
	}
	if enum, ok := s["enum"].([]any); ok && !slices.ContainsFunc(enum, func(e any) bool { return fmt.Sprint(e) == fmt.Sprint(value) }) {
		errs = append(errs, fmt.Sprintf("%s: %v is none of %v", where, value, enum))
	}
	switch v := value.(type) {
	case map[string]any:
		errs = append(errs, objectErrors(t, doc, s, v, where)...)
	case []any:
		for i, item := range v {
			if s["items"] != nil {
				errs = append(errs, schemaErrors(t, doc, s["items"], item, fmt.Sprintf("%s/%d", where, i))...)
			}
		}
	case json.Number:
		if low, ok := s["minimum"]; ok && number(t, v.String()).Cmp(number(t, fmt.Sprintf("%.0f", low))) < 0 {
			errs = append(errs, fmt.Sprintf("%s: %v is below %v", where, v, low))
		}
	}
	return errs
}

func objectErrors(t *testing.T, doc, s map[string]any, v map[string]any, where string) (errs []string) {
	t.Helper()
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok { //nolint:forcetypeassert // names are strings
			errs = append(errs, fmt.Sprintf("%s: no %v", where, name))
		}
	}
	for name, member := range v {
		switch {
		case properties[name] != nil:
			errs = append(errs, schemaErrors(t, doc, properties[name], member, where+"/"+name)...)
		case s["additionalProperties"] == false:
			errs = append(errs, fmt.Sprintf("%s: %s is not in the schema", where, name))
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

func number(t *testing.T, s string) *big.Float {
	t.Helper()
	f, ok := new(big.Float).SetString(s)
	if !ok {
		t.Fatalf("%q is no number", s)
	}
	return f
}

// Every route stands in the document, and the other way round; pprof is left
// out, since it is for people with Go's own tools.
func TestDocumentHasTheRoutes(t *testing.T) {
	doc := document(t)
	want := map[string]bool{}
	for _, r := range httpapi.Endpoints() {
		method, pattern, _ := strings.Cut(r, " ")
		pattern = strings.Replace(pattern, "...}", "}", 1)
		switch {
		case strings.HasPrefix(pattern, "/debug/"):
		case method == "ANY":
			for _, m := range []string{"get", "head", "post", "put", "patch", "delete", "options", "trace"} {
				want[m+" "+pattern] = true
			}
		default:
			want[strings.ToLower(method)+" "+pattern] = true
		}
	}
	got := map[string]bool{}
	paths, ok := doc["paths"].(map[string]any)
	if !ok {
		t.Fatal("no paths")
	}
	for path, ops := range paths {
		for method := range ops.(map[string]any) { //nolint:forcetypeassert // a path item is a map
			if method != "parameters" {
				got[method+" "+path] = true
			}
		}
	}
	for r := range want {
		if !got[r] {
			t.Errorf("openapi.yaml lacks %s", r)
		}
	}
	for r := range got {
		if !want[r] {
			t.Errorf("no handler for %s of openapi.yaml", r)
		}
	}
}

func TestReferencesResolve(t *testing.T) {
	doc := document(t)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				at(t, doc, ref)
			}
			for _, member := range v {
				walk(member)
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		}
	}
	walk(doc)
}

// Real answers, each held against the schema that the document has for its
// path, method, status and media type.
func TestAnswersMatchTheDocument(t *testing.T) {
	doc := document(t)
	byTenant := &fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
		switch r.Tenant {
		case "full":
			return denied(r), nil
		case "closed":
			return quota.Decision{Policy: "standard", Basis: quota.BasisClosed, Mode: quota.ModeLocal, Reason: quota.ReasonBreakerOpen}, nil
		case "lost":
			return quota.Decision{}, context.DeadlineExceeded
		case "dear":
			return quota.Decision{}, &quota.Invalid{Fault: quota.FaultCost, Fields: []quota.FieldError{{Pointer: "/cost", Detail: "is at most 600"}}}
		case "none":
			return quota.Decision{Allowed: true, Policy: "standard"}, nil
		case "observed":
			d := denied(r)
			d.Allowed, d.WouldDeny, d.Enforcement, d.Reason = true, true, quota.Observe, quota.ReasonRedisRefused
			return d, nil
		}
		d := allowed(r)
		if r.Explain {
			d.Explanation = &quota.Explanation{Region: "local", ConfigHash: "x", Limits: []quota.LimitExplanation{{Name: "burst"}}}
		}
		return d, nil
	}}
	o := options(byTenant)
	notReady := o
	notReady.Ready = func() (bool, []string) { return false, []string{"draining"} }
	guarded := o
	guarded.Settings = with(&httpapi.Settings{Access: access(t)})
	forward := o
	forward.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth()})
	batch := `{"checks":[{"tenant":"a"},{"tenant":"full"},{"tenant":"closed"},{"tenant":"lost"},{"tenant":"dear"},{"tenant":""},{"tenant":"observed"},{"tenant":"none"}]}`
	rows := []struct {
		h            http.Handler
		method, path string // path as in the document
		target, body string
		status       int
	}{
		{data(t, o), "post", "/v1/check", "/v1/check", `{"tenant":"a"}`, 200},
		{data(t, o), "post", "/v1/check", "/v1/check?explain=1", `{"tenant":"a"}`, 200},
		{data(t, o), "post", "/v1/check", "/v1/check", `{"tenant":"observed"}`, 200},
		{data(t, o), "post", "/v1/check", "/v1/check", `{"tenant":"none"}`, 200},
		{data(t, o), "post", "/v1/check", "/v1/check", `{"tenant":"full"}`, 429},
		{data(t, o), "post", "/v1/check", "/v1/check", `{"tenant":"dear","cost":601}`, 422},
		{data(t, o), "post", "/v1/check", "/v1/check", `{"tenant":"a","cost":0}`, 400},
		{data(t, o), "post", "/v1/check", "/v1/check", `{"tenant":"closed"}`, 503},
		{data(t, o), "post", "/v1/check", "/v1/check", `{"tenant":"lost"}`, 503},
		{data(t, o), "post", "/v1/check", "/v1/check", strings.Repeat(" ", 70000), 413},
		{data(t, guarded), "post", "/v1/check", "/v1/check", `{"tenant":"a"}`, 401},
		{data(t, o), "post", "/v1/check:batch", "/v1/check:batch", batch, 200},
		{data(t, o), "post", "/v1/check:batch", "/v1/check:batch", `{"checks":[]}`, 400},
		{data(t, o), "post", "/v1/report", "/v1/report", `{"tenant":"full"}`, 200},
		{data(t, o), "post", "/v1/report", "/v1/report", `{"tenant":"lost"}`, 503},
		{data(t, o), "get", "/v1/usage/{tenant}", "/v1/usage/full", "", 200},
		{data(t, o), "get", "/v1/usage/{tenant}", "/v1/usage/a?x", "", 400},
		{data(t, o), "get", "/v1/authz", "/v1/authz", "", 403},
		{data(t, forward), "get", "/v1/authz/{path}", "/v1/authz/status", "", 200},
		{data(t, forward), "get", "/v1/authz/{path}", "/v1/authz/x", "", 403},
		{data(t, forward), "get", "/v1/authz-nginx", "/v1/authz-nginx", "", 403},
		{admin(t, o), "get", "/healthz", "/healthz", "", 200},
		{admin(t, o), "get", "/readyz", "/readyz", "", 200},
		{admin(t, notReady), "get", "/readyz", "/readyz", "", 503},
		{admin(t, o), "get", "/v1/regions", "/v1/regions", "", 200},
		{admin(t, guarded), "get", "/v1/regions", "/v1/regions", "", 401},
		{admin(t, o), "delete", "/v1/usage/{tenant}", "/v1/usage/a", "", 204},
		{admin(t, o), "delete", "/v1/usage/{tenant}", "/v1/usage/%20", "", 400},
	}
	for _, row := range rows {
		t.Run(fmt.Sprintf("%s %s %d", row.method, row.target, row.status), func(t *testing.T) {
			got := serve(row.h, request(strings.ToUpper(row.method), row.target, row.body))
			if got.status != row.status {
				t.Fatalf("status %d: %s", got.status, got.body)
			}
			pointer := "#/paths/" + strings.ReplaceAll(row.path, "/", "~1") + "/" + row.method + "/responses/" + fmt.Sprint(row.status)
			matches(t, doc, pointer, got)
		})
	}
	full := serve(data(t, forward), request("GET", "/v1/authz/x", "", "X-Tenant: full"))
	matches(t, doc, "#/paths/~1v1~1authz~1{path}/get/responses/429", full)
}

func matches(t *testing.T, doc map[string]any, pointer string, got reply) {
	t.Helper()
	response := at(t, doc, pointer)
	if ref, ok := response.(map[string]any)["$ref"].(string); ok { //nolint:forcetypeassert // a response is a map
		pointer, response = ref, at(t, doc, ref)
	}
	content, ok := response.(map[string]any)["content"].(map[string]any) //nolint:forcetypeassert // as above
	if !ok {
		if got.body != "" {
			t.Errorf("%s has no body, the answer has %q", pointer, got.body)
		}
		return
	}
	media, ok := content[got.field("Content-Type")].(map[string]any)
	if !ok {
		t.Fatalf("%s has no %q", pointer, got.field("Content-Type"))
	}
	if media["schema"] == nil {
		return
	}
	for _, e := range schemaErrors(t, doc, media["schema"], any(got.json(t)), "") {
		t.Error(e)
	}
}

// The checker itself bites.
func TestSchemaChecker(t *testing.T) {
	doc := document(t)
	rows := []struct {
		schema, value string
		ok            bool
	}{
		{"Limit", `{"name":"a","limit":1,"window_ms":1,"remaining":0,"scope":"region","ceiling":0}`, true},
		{"Limit", `{"name":"a","limit":1,"window_ms":1,"remaining":-1,"scope":"region","ceiling":0}`, false},
		{"Limit", `{"name":"a","limit":1.5,"window_ms":1,"remaining":0,"scope":"region","ceiling":0}`, false},
		{"Limit", `{"name":"a","limit":1,"window_ms":1,"remaining":0,"scope":"all","ceiling":0}`, false},
		{"Limit", `{"name":7,"limit":1,"window_ms":1,"remaining":0,"scope":"region","ceiling":0}`, false},
		{"Limit", `{"name":"a","limit":1,"window_ms":1,"remaining":0,"scope":"region"}`, false},
		{"Limit", `{"name":"a","limit":1,"window_ms":1,"remaining":0,"scope":"region","ceiling":0,"x":1}`, false},
		{"Health", `{"status":"ok"}`, true},
		{"Health", `{"status":"bad"}`, false},
		{"Results", `{"results":[{"x":1}]}`, false},
		{"Readiness", `{"ready":true,"reasons":[1]}`, false},
	}
	for _, row := range rows {
		got := schemaErrors(t, doc, map[string]any{"$ref": "#/components/schemas/" + row.schema}, any(reply{body: row.value}.json(t)), "")
		if (len(got) == 0) != row.ok {
			t.Errorf("%s %s: %v", row.schema, row.value, got)
		}
	}
}
