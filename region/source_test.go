package region_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

const small = `regions: [{name: here, http: ":8080"}]
policies: [{name: p, limits: [{name: a, units: 1, per: 1s}]}]
tenants: {default: {policy: p}}
`

// Different ways to write the same topology.
func TestWaysOfWriting(t *testing.T) {
	want := parse(t, small)
	for _, row := range []struct{ why, src string }{
		{"a byte order mark", "\ufeff" + small},
		{"line ends of Windows", strings.ReplaceAll(small, "\n", "\r\n")},
		{"a document header and a directive", "%YAML 1.2\n---\n" + small + "...\n"},
		{"JSON", `{"regions": [{"name": "here", "http": ":8080"}],
			"policies": [{"name": "p", "limits": [{"name": "a", "units": 1, "per": "1s"}]}],
			"tenants": {"default": {"policy": "p"}}}`},
		{"explicit keys and block text", "? regions\n: - name: >-\n      here\n    http: ':8080'\n" + small[strings.Index(small, "policies"):]},
		{"an alias", "regions: [{name: &h here, http: \":8080\"}]\npolicies: [{name: &p p, limits: [{name: a, units: 1, per: 1s}]}]\ntenants: {default: {policy: *p}}\n"},
		{"an anchor on a key", strings.Replace(small, "regions:", "&r regions:", 1)},
		{
			"a merge, its own fields first",
			"regions: [{name: here, http: \":8080\"}]\npolicies:\n  - name: p\n    limits:\n      - &a {name: a, units: 1, per: 1s}\ntenants:\n  default: &d {policy: p}\n  <<: {default: {policy: nowhere}}\n",
		},
		{
			"a merge of a list, the first one first",
			strings.Replace(small, "{name: a, units: 1, per: 1s}", "{<<: [{name: a}, {name: b, units: 1, per: 1s}]}", 1),
		},
	} {
		got, _, err := region.Parse("t.yaml", []byte(row.src))
		if err != nil {
			t.Errorf("%s: %v", row.why, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", row.why, diff)
		}
	}
}

// Files that are hostile rather than wrong: each is refused, soon, in one mistake.
func TestHostileFilesAreRefused(t *testing.T) {
	bomb := "policies:\n  - &p\n    name: p\n    limits: [&l {name: a, units: 1, per: 1s}" + strings.Repeat(", *l", 300) + "]\n" + strings.Repeat("  - *p\n", 300)
	merges := "tenants:\n  <<: [&a {" + strings.Repeat("k: {policy: p}, ", 600)
	for i := range 600 {
		merges = strings.Replace(merges, "k:", fmt.Sprintf("k%d:", i), 1)
	}
	merges += "}" + strings.Repeat(", *a", 600) + "]\n"
	regions, rest, _ := strings.Cut(small, "tenants:")
	_, policies, _ := strings.Cut(small, "\n")
	for _, row := range []struct{ why, src, want string }{
		{"too large", small + strings.Repeat("#", region.MaxBytes), "the file has"},
		{"brackets", strings.Repeat("[", 1<<16), "nested deeper"},
		{"braces", strings.Repeat("{a: ", 1<<15), "nested deeper"},
		{"dashes", strings.Repeat("- ", 1<<16), "nested deeper"},
		{"question marks", strings.Repeat("? ", 1<<16), "nested deeper"},
		{"indentation", indented(1000), "nested deeper"},
		{"aliases of aliases", bomb, "more than 262144 values"},
		{"merges of one alias", merges, "more than 262144 values"},
		{"keys", "[" + strings.Repeat("a: b,", 1<<16+1) + "]", "keys and list items"},
		{"a long key", strings.Repeat("k", 2000) + ": 1\n", "a key has at most"},
		{"an anchor within itself", "regions: &a [*a]\n" + policies, "no anchor"},
		{"an anchor that is its alias", "a: &a *a\n", "is not YAML"},
		{"a merge of itself", regions + "tenants: &a {<<: *a, " + rest[2:], "no anchor"},
		{"a merged list of itself", regions + "tenants: {<<: &a [*a], " + rest[2:], "no anchor"},
		{"a key that is a list", "access: {admin_client_names: &a []}\n" + regions + "tenants: {*a : {policy: p}, " + rest[2:], "a key must be"},
		{"nothing but a header", "---\n", "empty"},
	} {
		_, _, err := region.Parse("t.yaml", []byte(row.src))
		var invalid *region.Invalid
		if !errors.As(err, &invalid) || len(invalid.Problems) != 1 || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %.200v, want one mistake with %q", row.why, err, row.want)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: the message has %d bytes", row.why, len(err.Error()))
		}
	}
}

// A file of nothing but mistakes is answered with the first hundred of them.
func TestManyMistakes(t *testing.T) {
	var b strings.Builder
	for i := range 2_000 {
		fmt.Fprintf(&b, "  u%d: {}\n", i)
	}
	_, _, err := region.Parse("t.yaml", []byte(strings.Replace(small, "tenants: {", "tenants:\n"+b.String()+"  ", 1)[:len(small)+b.Len()-1]))
	var invalid *region.Invalid
	if !errors.As(err, &invalid) || len(invalid.Problems) != 101 {
		t.Fatalf("got %.300v, want 101 lines", err)
	}
	if got, want := invalid.Problems[100].Text("t.yaml"), "t.yaml:104:9: 1900 more follow"; got != want {
		t.Errorf("the last line is %q, want %q", got, want)
	}
}

func indented(levels int) string {
	var b strings.Builder
	for i := range levels {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
	}
	return b.String()
}

func TestInvalidAsJSON(t *testing.T) {
	_, _, err := region.Parse("t.yaml", []byte(strings.Replace(small, "units: 1", "units: 0", 1)))
	var invalid *region.Invalid
	if !errors.As(err, &invalid) {
		t.Fatalf("error %v is not an *Invalid", err)
	}
	got, err := json.Marshal(invalid)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"file":"t.yaml","mistakes":[{"line":2,"column":48,"pointer":"/policies/0/limits/0/units",` +
		`"detail":"must be between 1 and 1099511627776, is 0"}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A topology that code puts together is held to the same rules.
func TestValidateWithoutAFile(t *testing.T) {
	top := region.Default()
	if ms := top.Validate(); len(ms) > 0 {
		t.Fatalf("the default topology: %v", ms)
	}
	top.Regions[0].Weight, top.Headers.Format, top.Tenants.Default.Policy = 0, "", "nowhere"
	top.Tenants.Listed["a b"] = quota.Tenant{Policy: "standard"}
	var got []string
	for _, m := range top.Validate() {
		got = append(got, m.Pointer)
	}
	want := []string{"/regions/0/weight", "/tenants/default/policy", "/tenants/a b", "/headers/format"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTooManyRegions(t *testing.T) {
	var b strings.Builder
	b.WriteString("regions:\n")
	for i := range quota.MaxRegions + 1 {
		fmt.Fprintf(&b, "  - {name: r%d, http: \":0\"}\n", i)
	}
	_, _, err := region.Parse("t.yaml", []byte(b.String()+small[strings.Index(small, "policies"):]))
	if want := "t.yaml:2:3: /regions: a topology has between 1 and 100 regions, this one 101"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
