package region

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/golden"
)

// A schema is what schema.json says of a value: the types that the parser decodes into, and the comments of their fields.
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        string             `json:"type,omitempty"`
	Const       any                `json:"const,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Default     any                `json:"default,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	MinLength   int                `json:"minLength,omitempty"`
	Minimum     *int64             `json:"minimum,omitempty"`
	Maximum     *int64             `json:"maximum,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	OneOf       []*schema          `json:"oneOf,omitempty"`
	If          *schema            `json:"if,omitempty"`
	Then        *schema            `json:"then,omitempty"`
	Else        *schema            `json:"else,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Others      any                `json:"additionalProperties,omitempty"` // false, or a schema

	keys  []string // of Properties, in the order of the type
	words []string // what each value of Enum means, as `value` and a verb
}

// A schemaReader makes schemas of types. The comments are those of the packages' sources.
type schemaReader struct {
	t      *testing.T
	fields map[string]string // "region.Region.Weight": the comment's first paragraph
	consts map[string][]word // "quota.Scope": its constants in their order
}

type word struct{ name, value, text string } // value is "" where it is not a string

func newSchemaReader(t *testing.T) *schemaReader {
	r := &schemaReader{t: t, fields: map[string]string{}, consts: map[string][]word{}}
	for name, dir := range map[string]string{"region": ".", "quota": "../quota"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal("no sources in ", dir, err)
		}
		for _, path := range files {
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if g, ok := d.(*ast.GenDecl); ok {
					r.read(name+".", g)
				}
			}
		}
	}
	return r
}

func (r *schemaReader) read(pkg string, g *ast.GenDecl) {
	of := ""
	for _, s := range g.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if st, ok := s.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					for _, name := range f.Names {
						r.fields[pkg+s.Name.Name+"."+name.Name] = first(f.Doc)
					}
				}
			}
		case *ast.ValueSpec:
			if id, ok := s.Type.(*ast.Ident); ok {
				of = pkg + id.Name
			} else if len(s.Values) > 0 {
				of = ""
			}
			if of != "" && g.Tok == token.CONST && len(s.Names) == 1 {
				w := word{name: s.Names[0].Name, text: first(s.Doc)}
				if len(s.Values) == 1 {
					if lit, ok := s.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
						w.value, _ = strconv.Unquote(lit.Value)
					}
				}
				r.consts[of] = append(r.consts[of], w)
			}
		}
	}
}

// first is the first paragraph of a comment, in one line.
func first(doc *ast.CommentGroup) string {
	text, _, _ := strings.Cut(doc.Text(), "\n\n")
	return strings.Join(strings.Fields(text), " ")
}

const duration = `^([0-9]+([.][0-9]*)?(ns|us|µs|ms|s|m|h))+$`

// of is the schema of what the parser decodes into a value of a type: Source.into, type by type.
func (r *schemaReader) of(t reflect.Type) *schema {
	switch reflect.New(t).Interface().(type) {
	case *time.Duration:
		return &schema{Type: "string", Pattern: duration}
	case *netip.Prefix:
		return &schema{Type: "string", Pattern: "/[0-9]+$"}
	case *slog.Level:
		return &schema{Type: "string", Enum: []string{"debug", "info", "warn", "error"}}
	case *quota.Overshoot:
		return &schema{Type: "string", Pattern: `^(none|[0-9]+([.][0-9]{1,2})?%)$`}
	case *quota.Times:
		return &schema{Type: "string", Pattern: "^[0-9]+x$"}
	case *Files:
		return &schema{OneOf: []*schema{{Type: "string", MinLength: 1}, r.of(reflect.TypeFor[[]string]())}}
	case *[]Domain:
		return &schema{Type: "object", Others: r.of(reflect.TypeFor[Domain]())}
	case *[]quota.DimensionSource:
		return &schema{Type: "object", Others: r.of(reflect.TypeFor[quota.DimensionSource]())}
	case *[]quota.Match:
		return &schema{Type: "object", Others: &schema{Type: "string", MinLength: 1}}
	case *map[string]string:
		names := &schema{Type: "string", MinLength: 1}
		return &schema{OneOf: []*schema{{Type: "array", Items: names}, {Type: "object", Others: names}}}
	case *Tenants:
		return &schema{Type: "object", Others: r.of(reflect.TypeFor[quota.Tenant]())}
	case *Compat:
		return &schema{OneOf: []*schema{{Type: "boolean"}, r.object(t)}}
	case *quota.Limit:
		c := r.object(reflect.TypeFor[concurrent]())
		c.Properties["kind"].Const = "concurrent"
		windows := &schema{Type: "object", If: &schema{Required: []string{"calendar"}}, Then: r.object(reflect.TypeFor[calendar]()), Else: r.object(t)}
		return &schema{Type: "object", If: &schema{Required: []string{"kind"}}, Then: c, Else: windows}
	case *timezone:
		return &schema{Type: "string", MinLength: 1}
	case *anchor:
		return &schema{OneOf: []*schema{{Type: "string"}, {Type: "integer"}}}
	case encoding.TextUnmarshaler:
		return r.enum(t)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return r.of(t.Elem())
	case reflect.Struct:
		return r.object(t)
	case reflect.Slice:
		return &schema{Type: "array", Items: r.of(t.Elem())}
	case reflect.String:
		if r.consts[t.String()] != nil {
			return r.enum(t)
		}
		return &schema{Type: "string", MinLength: 1}
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Int64:
		return &schema{Type: "integer"}
	case reflect.Float64:
		return &schema{Type: "string", Pattern: "^[0-9.]+%$"}
	}
	r.t.Fatalf("%v is a type that the schema does not know yet; it belongs here as in Source.into", t)
	return nil
}

// enum is a type with constants: strings, or numbers with names of which the parser takes all or some.
func (r *schemaReader) enum(t reflect.Type) *schema {
	s := &schema{Type: "string"}
	for i, c := range r.consts[t.String()] {
		v := reflect.New(t)
		if v.Elem().CanUint() {
			v.Elem().SetUint(uint64(i))
			c.value = v.Interface().(fmt.Stringer).String()
		}
		if u, ok := v.Interface().(encoding.TextUnmarshaler); ok && u.UnmarshalText([]byte(c.value)) != nil {
			continue
		}
		rest, ok := strings.CutPrefix(c.text, c.name+" ")
		if !ok || c.value == "" {
			r.t.Errorf("%s: the comment %q does not begin with the name; its first paragraph is what docs/topology.md says of %q", c.name, c.text, c.value)
		}
		s.Enum, s.words = append(s.Enum, c.value), append(s.words, rest)
	}
	if len(s.Enum) == 0 {
		r.t.Fatalf("%v has no constants; a text of another kind belongs into schemaReader.of", t)
	}
	return s
}

var (
	defaultText = regexp.MustCompile("Default: `([^`]*)`")
	rangeText   = regexp.MustCompile("`([0-9]+)` to `([0-9]+)`")
)

// object is a struct with its tags and comments.
func (r *schemaReader) object(t reflect.Type) *schema {
	s := &schema{Type: "object", Properties: map[string]*schema{}, Others: false}
	for i := range t.NumField() {
		f := t.Field(i)
		key, need, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "" {
			continue
		}
		own := r.of(f.Type)
		rest, ok := strings.CutPrefix(r.fields[t.String()+"."+f.Name], f.Name+" ")
		if !ok {
			r.t.Errorf("%v.%s has no comment that begins with %[2]s: its first paragraph is what docs/topology.md says of the key %s", t, f.Name, key)
		}
		own.Description = "`" + key + "` " + rest
		if m := defaultText.FindStringSubmatch(rest); m != nil {
			own.Default = m[1]
			if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
				own.Default = n
			} else if b, err := strconv.ParseBool(m[1]); err == nil {
				own.Default = b
			}
		}
		if m := rangeText.FindStringSubmatch(rest); m != nil && own.Type == "integer" {
			least, _ := strconv.ParseInt(m[1], 10, 64)
			most, _ := strconv.ParseInt(m[2], 10, 64)
			own.Minimum, own.Maximum = &least, &most
		}
		if own.Type == "integer" && own.Minimum == nil {
			r.t.Errorf("%v.%s: the comment has no range such as `1` to `10`", t, f.Name)
		}
		if need == "required" {
			s.Required = append(s.Required, key)
		}
		s.keys, s.Properties[key] = append(s.keys, key), own
	}
	return s
}

func topologySchema(t *testing.T) *schema {
	s := newSchemaReader(t).of(reflect.TypeFor[Topology]())
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", "topology.yaml of regiond"
	return s
}

// limitKinds are what the paths of limits end with that have a key.
var limitKinds = map[string]string{"kind": " of kind: concurrent", "calendar": " with calendar"}

// visit calls f for a schema of an object and for all below it, with the path that leads there in the file.
func (s *schema) visit(path string, f func(path string, s *schema)) {
	if s.Properties != nil {
		f(path, s)
		for _, key := range s.keys {
			s.Properties[key].visit(strings.TrimPrefix(path+"."+key, "."), f)
		}
	}
	if s.Items != nil {
		s.Items.visit(path+"[]", f)
	}
	if s.Then != nil {
		s.Else.visit(path, f)
		s.Then.visit(path+limitKinds[s.If.Required[0]], f)
	}
	for _, o := range s.OneOf {
		o.visit(path, f)
	}
	if others, ok := s.Others.(*schema); ok {
		others.visit(path+".NAME", f)
	}
}

const pageHead = `# topology.yaml

After this page you know every key of a topology.yaml. [configure](configure.md) shows how to use them;
[topology.yaml](../topology.yaml) is a whole one, of three regions. The comments of the program's types are the source of this page
and of the JSON Schema that ` + "`regiond schema`" + ` prints. An editor with a YAML language server completes keys, and shows what they
mean, after
` + "```sh" + `
regiond schema > topology.schema.json
` + "```" + `
and with this line at the top of the file:
` + "```yaml" + `
# yaml-language-server: $schema=topology.schema.json
` + "```" + `
- All regions use the same file; ` + "`--region eu-west`" + ` selects a process's region.
- ` + "`regiond validate topology.yaml`" + ` checks a file: exit code 0, or 2 with line and column of each mistake. It knows more rules than the
  schema.
- Unknown and duplicate keys are errors, so a typo cannot disable a limit.
- Sizes are plain whole numbers (600, not 6e2). Durations have a unit: 500ms, 1s, 1m, 24h. Percentages end in %.
- The file contains no secrets: every ` + "`*_file`" + ` is a path.
- SIGHUP, or replacing a file, [reloads](operate.md#reload) policies, tenants, routes, headers and secrets, and keeps usage. Addresses
  and stores need a restart.
`

// page is docs/topology.md.
func page(s *schema) string {
	var b strings.Builder
	b.WriteString(pageHead)
	s.visit("", func(path string, s *schema) {
		if path == "" {
			b.WriteString("\n## The file\n")
		} else {
			fmt.Fprintf(&b, "\n## %s\n", path)
		}
		for _, key := range s.keys {
			own := s.Properties[key]
			text := strings.Replace(own.Description, "`"+key+"`", "**`"+key+"`**", 1)
			if slices.Contains(s.Required, key) {
				text = strings.Replace(text, "** ", "** (required) ", 1)
			}
			text = strings.NewReplacer("docs/configure.md", "[configure](configure.md#a-policy-from-the-request)", "docs/operate.md", "[operate](operate.md)", "docs/tokens.md", "[tokens](tokens.md)",
				"docs/gateways.md", "[gateways](gateways.md)", "docs/coming-from.md", "[coming from](coming-from.md)",
				"examples/nats", "[examples/nats](../examples/nats/nats.conf)", "deploy/redis.acl", "[deploy/redis.acl](../deploy/redis.acl)").Replace(text)
			wrap(&b, "- ", text)
			for i, w := range own.words {
				if strings.Contains(text, " as of a ") {
					break
				}
				wrap(&b, "  - ", "`"+own.Enum[i]+"` "+w)
			}
		}
	})
	return b.String()
}

// wrap writes an item of a list in lines of 130 columns.
func wrap(b *strings.Builder, bullet, text string) {
	line := bullet
	indent := strings.Repeat(" ", len(bullet))
	for i, w := range strings.Fields(text) {
		switch {
		case i > 0 && len(line)+1+len(w) > 130:
			b.WriteString(line + "\n")
			line = indent + w
		case i > 0:
			line += " " + w
		default:
			line += w
		}
	}
	b.WriteString(line + "\n")
}

// The page and the schema are what the types and their comments make. A new key without a comment is an error here; with one,
// -update writes both anew.
func TestReference(t *testing.T) {
	s := topologySchema(t)
	golden.Compare(t, "../schema.json", s.text(t))
	golden.Compare(t, "../../docs/topology.md", page(s))
}

func (s *schema) text(t *testing.T) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// sample has every object that a topology can have.
const sample = `
regions:
  - name: a
    http: 127.0.0.1:0
    gossip: {bind: 127.0.0.1:7946, advertise: "a.example:7946", key_file: k}
    redis: {addrs: ["r:6379"], tls: {}}
    nats: {urls: ["nats://n:4222"], tls: {}}
policies:
  - name: p
    limits: [{name: windowed, units: 100000, per: 1ms, algorithm: gcra}, {name: held, units: 5, kind: concurrent}, {name: monthly, units: 5, calendar: month}]
tenants: {one: {policy: p}}
forward_auth: {tenant: {header: X-T}, policy_from: {header: X-Plan}, dimensions: {one: {header: X-User}}, routes: [{name: r, path: /r}]}
headers: {}
access: {}
rls: {domains: {one: {file: f.yaml, tenant: [t], policy_from: {descriptor: d}}}, compat: {}}
`

// parsed is what Parse makes of the sample with a key of the object at a path set to a value, or without that key. pointer is
// that of the key.
func parsed(t *testing.T, path, key string, value any) (top *Topology, problems []Problem, pointer string) {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal([]byte(sample), &doc); err != nil {
		t.Fatal(err)
	}
	in, object := "", doc
	path, held := strings.CutSuffix(path, limitKinds["kind"])
	path, calendar := strings.CutSuffix(path, limitKinds["calendar"])
	for _, step := range strings.FieldsFunc(strings.NewReplacer("[]", ".[]", "NAME", "one").Replace(path), func(c rune) bool { return c == '.' }) {
		if step == "[]" {
			i := 0
			switch limits := strings.HasSuffix(in, "/limits"); {
			case held && limits:
				i = 1
			case calendar && limits:
				i = 2
			}
			in, object = quota.Item(in, i), object.([]any)[i]
			continue
		}
		in, object = quota.Under(in, step), object.(map[string]any)[step]
	}
	m, ok := object.(map[string]any)
	if !ok {
		t.Fatalf("the sample has no object at %q", path)
	}
	if delete(m, key); value != nil {
		m[key] = value
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	top, _, err = Parse("sample.yaml", text)
	if invalid := (*Invalid)(nil); errors.As(err, &invalid) {
		problems = invalid.Problems
	}
	return top, problems, quota.Under(in, key)
}

func at(problems []Problem, pointer string) string {
	for _, p := range problems {
		if p.Pointer == pointer {
			return p.Detail
		}
	}
	return ""
}

// The parser knows, of every object, the keys that the schema has and no other.
func TestSchemaHasTheParsersKeys(t *testing.T) {
	topologySchema(t).visit("", func(path string, s *schema) {
		_, problems, pointer := parsed(t, path, "zzzzzzzzzzzz", 1)
		_, known, found := strings.Cut(at(problems, pointer), "known here: ")
		if got := strings.Join(slices.Sorted(slices.Values(s.keys)), ", "); !found || got != known {
			t.Errorf("%s: the schema has %s, the parser %s (%v)", path, got, known, problems)
		}
	})
}

// A default is what an absent key means, and a range is what the parser takes.
func TestDefaultsAndRangesAreTheParsers(t *testing.T) {
	defaults, ranges := 0, 0
	topologySchema(t).visit("", func(path string, s *schema) {
		for key, own := range s.Properties {
			if own.Default != nil {
				defaults++
				absent, p, pointer := parsed(t, path, key, nil)
				set, q, _ := parsed(t, path, key, own.Default)
				if absent == nil || set == nil {
					t.Errorf("%s: the sample is refused: %v %v", pointer, p, q)
				} else if absent.MaxOverride, set.MaxOverride = quota.Times(absent.MostOverride()), quota.Times(set.MostOverride()); !reflect.DeepEqual(absent, set) {
					t.Errorf("%s: %v is not what its absence means:\n%+v\n%+v", pointer, own.Default, set, absent)
				}
			}
			if own.Minimum != nil {
				ranges++
				for value, ok := range map[int64]bool{*own.Minimum: true, *own.Maximum: true, *own.Minimum - 1: false, *own.Maximum + 1: false} {
					if _, problems, pointer := parsed(t, path, key, value); (at(problems, pointer) == "") != ok {
						t.Errorf("%s: %d: the parser says %q", pointer, value, at(problems, pointer))
					}
				}
			}
		}
	})
	if defaults < 25 || ranges < 8 {
		t.Errorf("only %d defaults and %d ranges were found in comments", defaults, ranges)
	}
}

// generic is a file as a JSON Schema sees it; ok is whether it is YAML at all.
func generic(t *testing.T, file string) (v any, src []byte, ok bool) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.YAMLToJSON(src)
	if err != nil {
		return nil, src, false
	}
	v, err = jsonschema.UnmarshalJSON(bytes.NewReader(text))
	return v, src, err == nil
}

// Every topology of the repository that the parser takes is valid by the schema. Those of testdata that have an unknown key,
// lack one, or have a value of the wrong kind are not.
func TestSchemaJudgesAsTheParser(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(topologySchema(t).text(t)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, pattern := range []string{"../topology.yaml", "../examples/*/topology.yaml", "../deploy/*/topology*.yaml", "*.yaml", "testdata/*.yaml", "testdata/topology/*.yaml"} {
		found, _ := filepath.Glob(pattern)
		files = append(files, found...)
	}
	wrong := regexp.MustCompile(`: unknown field |: is missing and has no default|: must be (a list|a mapping|text|true or false|a whole number, found)`)
	valid, refused := 0, 0
	for _, file := range files {
		v, src, ok := generic(t, file)
		if !ok {
			continue
		}
		_, _, invalid := Parse(file, src)
		err := compiled.Validate(v)
		switch {
		case invalid == nil:
			if valid++; err != nil {
				t.Errorf("%s is valid, and the schema refuses it: %v", file, err)
			}
		case wrong.MatchString(invalid.Error()):
			if refused++; err == nil {
				t.Errorf("%s: the schema finds nothing; the parser: %v", file, invalid)
			}
		}
	}
	if valid < 20 || refused < 25 {
		t.Errorf("only %d valid files and %d of a wrong form were found", valid, refused)
	}
}
