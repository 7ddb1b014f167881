package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/test/golden"
)

// docs/api.md is what httpapi/openapi.yaml and the table of problem types make; -update writes it anew.
func TestAPIPage(t *testing.T) {
	golden.Compare(t, "../../../docs/api.md", apiPage(t))
}

// A page is docs/api.md while it is written.
type page struct {
	*testing.T
	strings.Builder
	doc yaml.MapSlice
}

// in is a member of a mapping, or what a path of members leads to; nil if there is none. References are followed.
func (p *page) in(v any, path ...string) any {
	for _, name := range path {
		m, _ := p.follow(v).(yaml.MapSlice)
		i := slices.IndexFunc(m, func(e yaml.MapItem) bool { return fmt.Sprint(e.Key) == name })
		if i < 0 {
			return nil
		}
		v = m[i].Value
	}
	return v
}

func (p *page) follow(v any) any {
	if ref := p.ref(v); ref != "" {
		return p.in(p.doc, strings.Split(ref, "/")[1:]...)
	}
	return v
}

func (p *page) ref(v any) string {
	if m, ok := v.(yaml.MapSlice); ok && len(m) == 1 && m[0].Key == "$ref" {
		return m[0].Value.(string)
	}
	return ""
}

func (p *page) members(v any) yaml.MapSlice {
	m, _ := p.follow(v).(yaml.MapSlice)
	return m
}

// text is a member that is text, in one line; "" if there is none.
func (p *page) text(v any, path ...string) string {
	if v = p.in(v, path...); v == nil {
		return ""
	}
	return strings.Join(strings.Fields(fmt.Sprint(v)), " ")
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// link is a reference as a link to its heading on the page, or "".
func (p *page) link(v any) string {
	ref := p.ref(v)
	if ref == "" {
		return ""
	}
	parts := strings.Split(ref, "/")
	name := parts[len(parts)-1]
	if strings.HasPrefix(ref, "#/components/responses/") {
		name = "answer " + name
	}
	return "[" + strings.TrimPrefix(name, "answer ") + "](#" + strings.ToLower(strings.ReplaceAll(name, " ", "-")) + ")"
}

// kind is the type of a schema in words.
func (p *page) kind(schema any) string {
	if link := p.link(schema); link != "" {
		return link
	}
	many := func(list any) string {
		var all []string
		for _, s := range list.([]any) {
			all = append(all, p.kind(s))
		}
		return strings.Join(all, " or ")
	}
	kind := p.text(schema, "type")
	switch {
	case p.in(schema, "oneOf") != nil:
		return many(p.in(schema, "oneOf"))
	case kind == "array":
		return "list of " + p.kind(p.in(schema, "items"))
	case kind == "object" && p.members(p.in(schema, "additionalProperties")) != nil:
		return "names to " + p.kind(p.in(schema, "additionalProperties"))
	}
	return kind
}

// meaning is the description of a schema, with the values and the range that it has.
func (p *page) meaning(schema any) string {
	var parts []string
	if c := p.text(schema, "const"); c != "" {
		parts = append(parts, "Always `"+c+"`.")
	}
	if list, ok := p.in(schema, "enum").([]any); ok {
		var values []string
		for _, v := range list {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		parts = append(parts, strings.Join(values, ", ")+".")
	}
	least, most := p.text(schema, "minimum"), p.text(schema, "maximum")
	switch {
	case most != "":
		parts = append(parts, least+" to "+most+".")
	case least != "" && least != "0":
		parts = append(parts, "At least "+least+".")
	}
	for _, most := range []struct{ member, what string }{{"maxItems", "items"}, {"maxProperties", "names"}, {"maxLength", "characters"}} {
		if n := p.text(schema, most.member); n != "" {
			parts = append(parts, "At most "+n+" "+most.what+".")
		}
	}
	if d := p.text(schema, "default"); d != "" {
		parts = append(parts, "Default `"+d+"`.")
	}
	if pattern := p.text(schema, "pattern"); pattern != "" {
		parts = append(parts, "Matches `"+strings.ReplaceAll(pattern, "|", `\|`)+"`.")
	}
	if d := p.text(schema, "description"); d != "" {
		parts = append(parts, strings.TrimSuffix(d, ".")+".")
	}
	return strings.ReplaceAll(strings.Join(parts, " "), "|", `\|`)
}

func (p *page) example(media any) {
	example := p.in(media, "example")
	if example == nil {
		return
	}
	var b bytes.Buffer
	text, err := yaml.MarshalWithOptions(example, yaml.JSON())
	if err != nil {
		p.Fatal(err)
	}
	if err := json.Indent(&b, bytes.TrimSpace(text), "", "  "); err != nil {
		p.Fatal(err)
	}
	p.line("```json\n%s\n```", b.String())
}

// fields is a table of the members of an object.
func (p *page) fields(schema any) {
	required, _ := p.in(schema, "required").([]any)
	p.line("| member | type | meaning |\n|---|---|---|")
	for _, m := range p.members(p.in(schema, "properties")) {
		name, meaning := fmt.Sprintf("`%v`", m.Key), p.meaning(m.Value)
		if slices.Contains(required, m.Key) {
			name += " (required)"
		}
		if p.link(m.Value) != "" { // it has a place of its own
			meaning = ""
		}
		p.line("| %s | %s | %s |", name, p.kind(m.Value), meaning)
	}
	p.line("")
}

func (p *page) parameters(shared, own any) {
	all, _ := shared.([]any)
	more, _ := own.([]any)
	all = slices.Concat(all, more)
	for _, v := range all {
		p.line("- `%s` (%s): %s", p.text(v, "name"), p.text(v, "in"), cmpText(p.text(v, "description"), p.meaning(p.in(v, "schema"))))
	}
	if len(all) > 0 {
		p.line("")
	}
}

func cmpText(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return strings.TrimSuffix(a, ".") + ". " + b
}

// answers is a table of the statuses of a call; those with the same answer share a row.
func (p *page) answers(responses any) {
	p.line("| status | answer |\n|---|---|")
	type row struct{ statuses, what string }
	var rows []row
	for _, r := range p.members(responses) {
		what := p.text(r.Value, "description")
		if link := p.link(r.Value); link != "" {
			what = link
		} else {
			for _, media := range p.members(p.in(r.Value, "content")) {
				if kind := p.kind(p.in(media.Value, "schema")); kind != "" && kind != "string" && kind != "object" {
					what += " " + kind
				}
			}
		}
		if i := slices.IndexFunc(rows, func(r row) bool { return r.what == what }); i >= 0 {
			rows[i].statuses += fmt.Sprintf(", %v", r.Key)
			continue
		}
		rows = append(rows, row{fmt.Sprint(r.Key), what})
	}
	for _, r := range rows {
		p.line("| %s | %s |", r.statuses, r.what)
	}
	p.line("")
}

func (p *page) call(methods, path string, shared, op any) {
	p.line("### %s %s\n%s", methods, path, p.text(op, "summary"))
	if d := p.text(op, "description"); d != "" {
		p.line("%s", d)
	}
	p.line("")
	p.parameters(shared, p.in(op, "parameters"))
	if media := p.in(op, "requestBody", "content", "application/json"); media != nil {
		if kind := p.kind(p.in(media, "schema")); kind != "object" {
			p.line("Body: %s", kind)
		} else {
			p.fields(p.in(media, "schema"))
		}
		p.example(media)
		p.line("")
	}
	p.answers(p.in(op, "responses"))
}

// anchors of GitHub: a heading in lower case, with - for a space, and without other signs.
func anchor(heading string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_':
			return c
		}
		return -1
	}, strings.ToLower(heading))
}

type call struct{ methods, path, tag, listener string }

// calls are those of the document, in its order; methods that do the same are one.
func (p *page) calls(f func(c call, shared, op any)) {
	for _, item := range p.members(p.in(p.doc, "paths")) {
		same := ""
		for _, m := range p.members(item.Value) {
			method := strings.ToUpper(fmt.Sprint(m.Key))
			if method == "PARAMETERS" {
				continue
			}
			if s := fmt.Sprint(m.Value); s == same {
				continue
			} else if same = s; len(p.members(item.Value)) > 7 {
				method = "ANY"
			}
			listener := "data"
			if servers, ok := p.in(m.Value, "servers").([]any); ok {
				listener = "admin"
				if len(servers) > 1 {
					listener = "both"
				}
			}
			tags := p.in(m.Value, "tags").([]any)
			f(call{method, fmt.Sprint(item.Key), tags[0].(string), listener}, p.in(item.Value, "parameters"), m.Value)
		}
	}
}

func apiPage(t *testing.T) string {
	src, err := os.ReadFile("../../httpapi/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := &page{T: t}
	if err := yaml.UnmarshalWithOptions(src, &p.doc, yaml.UseOrderedMap()); err != nil {
		t.Fatal(err)
	}
	p.line("# API\n\nAfter this page you can call regiond from your own code, and read what it answers. It is made from\n" +
		"[openapi.yaml](../httpapi/openapi.yaml), which a process serves as `GET /v1/openapi.yaml`, and from which clients are\n" +
		"generated. [configure](configure.md#what-a-customer-sees) says what the header fields and the members of a decision mean.\n")
	p.line("%s", strings.TrimSpace(fmt.Sprint(p.in(p.doc, "info", "description"))))
	p.line("\n## Calls\n| call | listener | what it does |\n|---|---|---|")
	p.calls(func(c call, _, op any) {
		p.line("| [`%s %s`](#%s) | %s | %s |", c.methods, c.path, anchor(c.methods+" "+c.path), c.listener, p.text(op, "summary"))
	})
	for _, tag := range p.in(p.doc, "tags").([]any) {
		name := p.text(tag, "name")
		p.line("\n## To %s", map[string]string{"decide": "decide", "reserve": "reserve", "forward-auth": "answer gateways", "page": "serve the page", "admin": "administer"}[name])
		if d := p.text(tag, "description"); d != "" {
			p.line("%s\n", d)
		}
		p.calls(func(c call, shared, op any) {
			if c.tag == name {
				p.call(c.methods, c.path, shared, op)
			}
		})
	}
	p.line("## Answers")
	for _, r := range p.members(p.in(p.doc, "components", "responses")) {
		p.line("### Answer %v\n%s", r.Key, p.text(r.Value, "description"))
		for _, media := range p.members(p.in(r.Value, "content")) {
			p.line("The body is `%v`: %s.", media.Key, p.kind(p.in(media.Value, "schema")))
			p.example(media.Value)
		}
		var names []string
		for _, h := range p.members(p.in(r.Value, "headers")) {
			names = append(names, fmt.Sprintf("`%v`", h.Key))
		}
		if names != nil {
			p.line("\nHeader fields: %s.", strings.Join(names, ", "))
		}
		p.line("")
	}
	p.line("## Header fields")
	seen := map[any]bool{}
	for _, r := range p.members(p.in(p.doc, "components", "responses")) {
		for _, h := range p.members(p.in(r.Value, "headers")) {
			if !seen[h.Key] {
				seen[h.Key] = true
				p.line("- `%v`: %s", h.Key, cmpText(p.text(h.Value, "description"), p.meaning(p.in(h.Value, "schema"))))
			}
		}
	}
	p.line("\n## Problem types\nThe `type` of a problem document (RFC 9457).\n\n| type | status | title |\n|---|---|---|")
	for _, k := range answer.Types() {
		p.line("| `%s` | %d | %s |", k.URI, k.Status, k.Title)
	}
	p.line("\n## Bodies")
	for _, s := range p.members(p.in(p.doc, "components", "schemas")) {
		p.line("### %v", s.Key)
		if p.members(p.in(s.Value, "properties")) == nil {
			p.line("%s: %s\n", p.kind(s.Value), p.meaning(s.Value))
			continue
		}
		if d := p.text(s.Value, "description"); d != "" {
			p.line("%s", d)
		}
		p.line("")
		p.fields(s.Value)
	}
	p.line(`## gRPC
The listener %[1]sgrpc%[1]s of a region serves these services. Reflection describes them to grpcurl and the like.

| service | schema | see |
|---|---|---|
| %[1]s%[2]s%[1]s | [rls.proto](https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/ratelimit/v3/rls.proto) | [Envoy](../examples/envoy/README.md#the-rate-limit-service) |
| %[1]s%[3]s%[1]s | [external_auth.proto](https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/auth/v3/external_auth.proto) | [ext_authz](gateways.md#ext_authz-over-grpc) |
| %[1]skuadrant.service.ratelimit.v1.RateLimitService%[1]s | [kuadrantrls.proto](../grpcapi/kuadrantrls.proto) | [tokens](tokens.md#over-grpc) |
| %[1]s%[4]s%[1]s | [health.proto](https://github.com/grpc/grpc-proto/blob/master/grpc/health/v1/health.proto) | |`,
		"`", ratelimit.RateLimitService_ServiceDesc.ServiceName, auth.Authorization_ServiceDesc.ServiceName, grpc_health_v1.Health_ServiceDesc.ServiceName)
	return p.String()
}
