package rls_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/region"
)

// TestMistakes: each is refused at its place. A line begins at column 1.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want string }{
		{"descriptors: []", "1:1 the file needs a domain"},
		{"domain: e", `1:9 is domain "e", and topology.yaml names it "d"`},
		{"domain: d\ndescriptors: x", "2:14 must be a list, found text \"x\""},
		{"domain: d\ndescriptors: [{value: x}]", "2:15 a descriptor has a key that is not empty"},
		{"domain: d\ndescriptors:\n  - {key: a, value: b}\n  - {key: a, value: b}", `4:11 descriptor "a_b" is duplicated`},
		{"domain: d\ndescriptors: [{key: a, ratelimit: {}}]", "2:24 unknown field \"ratelimit\""},
		{"domain: d\ndescriptors: [{key: a, share_threshold: true}]", "2:41 needs a value with a *: it has all that match counted together"},
		{"domain: d\ndescriptors: [{key: a, metadata: [x]}]", "2:34 must be a mapping"},
		{"domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: fortnight}", "4:24 must be one of second, minute"},
		{"domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: year}", "4:24 a window lasts at most 744h"},
		{"domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: week, unit_multiplier: 5}", "4:47 must be between 1 and 4"},
		{"domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: week, unit_multiplier: 0}", "4:47 must be between 1 and 4"},
		{"domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day, requests_per_unit: 4294967296}", "4:48 must be between 0 and 4294967295"},
		{"domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day, requests_per_unit: -1}", "4:48 must be between 0 and 4294967295"},
		{"domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day, unlimited: true}", "4:24 what is unlimited has no unit"},
		{"domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day, name: n, replaces: [{name: n}]}", "4:49 is the limit's own name"},
		{"domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day, replaces: [{name: ''}]}", "4:40 names the limit that is replaced"},
	} {
		d, mistakes, _ := rls.Compile(&region.Domain{Name: "d"}, rls.Source{Text: []byte(row.text)})
		if d != nil || len(mistakes) != 1 {
			t.Errorf("%s\nis read with %v", row.text, mistakes)
			continue
		}
		if got := fmt.Sprintf("%d:%d %s", mistakes[0].Line, mistakes[0].Column, mistakes[0].Detail); !strings.HasPrefix(got, row.want) {
			t.Errorf("%s\n%s, want %s", row.text, got, row.want)
		}
	}
}

// TestFiles: the files of a domain are one tree of descriptors, and a problem is in one of them.
func TestFiles(t *testing.T) {
	t.Parallel()
	read := func(texts ...string) (*rls.Domain, string) {
		var sources []rls.Source
		for i, text := range texts {
			sources = append(sources, rls.Source{Path: fmt.Sprint("f", i), Text: []byte(text)})
		}
		d, mistakes, warnings := rls.Compile(&region.Domain{Name: "d"}, sources...)
		var all []string
		for _, p := range append(mistakes, warnings...) {
			all = append(all, fmt.Sprintf("%s:%d %.20s", p.File, p.Line, p.Detail))
		}
		return d, strings.Join(all, ", ")
	}
	const a, b = "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: day}}\n", "domain: d\ndescriptors:\n  - {key: b, rate_limit: {unit: day}}\n"
	d, said := read(a, b)
	if d == nil || len(d.Rules()) != 2 || said != "f0:1 limits are of slidin, f1:1 limits are of slidin" {
		t.Errorf("%v: %s", d, said)
	}
	for i, row := range []struct {
		texts []string
		want  string
	}{
		{[]string{a, b, a}, `f2:3 descriptor "a" is du`},
		{[]string{a, "domain: e\n"}, `f1:1 is domain "e", and t`},
		{[]string{"domain: [", "domain: d\nx: y"}, `f0:1 `},
	} {
		if d, said := read(row.texts...); d != nil || !strings.HasPrefix(said, row.want) {
			t.Errorf("%d: %v, %s, want %s", i, d, said, row.want)
		}
	}
}

// TestNeverReached: with policy_from a rate_limit under a tenant key decides nothing, and a warning says where it is.
func TestNeverReached(t *testing.T) {
	t.Parallel()
	const file = "domain: d\ndescriptors:\n  - {key: ip, rate_limit: {unit: day}}\n  - key: ip2\n    descriptors:\n      - {key: org, value: x, rate_limit: {unit: day}}\n"
	for want, from := range map[string]*region.PolicyFrom{"": nil, "6:42": {Descriptor: "plan"}} {
		_, mistakes, warnings := rls.Compile(&region.Domain{Name: "d", Tenant: []string{"user", "org"}, PolicyFrom: from}, rls.Source{Text: []byte(file)})
		got := ""
		for _, w := range warnings {
			if strings.HasPrefix(w.Detail, "is never reached") {
				got += fmt.Sprintf("%d:%d", w.Line, w.Column)
			}
		}
		if got != want || len(mistakes) > 0 {
			t.Errorf("policy_from %v: warned at %q, want %q, %v", from, got, want, mistakes)
		}
	}
}

// TestLoad: paths are from the topology's folder, one alone or a list.
func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"top.yaml": "regions: [{name: eu, http: 127.0.0.1:1}]\nrls: {domains: {d: {file: [one.yaml, two.yaml]}, e: {file: three.yaml}}}\n" +
			"policies: [{name: p, limits: [{name: l, units: 1, per: 1s}]}]\ntenants: {default: {policy: p}}\n",
		"one.yaml":   "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day}}]",
		"two.yaml":   "domain: d\ndescriptors: [{key: b, rate_limit: {unit: day}}]",
		"three.yaml": "domain: e",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	top, _, err := rls.Load(filepath.Join(dir, "top.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	ds, err := rls.Domains(top)
	if err != nil || len(ds["d"].Rules()) != 2 || len(ds["e"].Rules()) != 0 {
		t.Errorf("%v %v", ds, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "two.yaml"), []byte("domain: d\nx: y"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := rls.Load(filepath.Join(dir, "top.yaml"), nil); err == nil || !strings.Contains(err.Error(), "two.yaml:2:1") {
		t.Error(err)
	}
}

// TestBlanks: a key without a value is as if it were not there, and the name of a file, or of a descriptor, is no limit's.
func TestBlanks(t *testing.T) {
	t.Parallel()
	compile(t, "name: file\ndomain: d\ndescriptors:\n")
	d := compile(t, "domain: d\ndescriptors:\n  - key: a\n    name: descriptor\n    value:\n    shadow_mode:\n    descriptors: ~\n"+
		"    rate_limit: {unit: day, unit_multiplier: , requests_per_unit: , replaces: }\n  - key: b\n    rate_limit:\n")
	if r := d.Rules(); len(r) != 1 || r[0].Path != "a" || r[0].Name != "" || r[0].PerUnit != 0 || r[0].Multiplier != 1 {
		t.Errorf("%+v", r)
	}
}

// TestNames: each path has a name of its own, so that no file is refused for two of them.
func TestNames(t *testing.T) {
	t.Parallel()
	d := compile(t, `
domain: d
descriptors:
  - {key: a-b, rate_limit: {unit: day}}
  - {key: a--b, rate_limit: {unit: day}}
  - key: a
    rate_limit: {unit: day}
    descriptors:
      - {key: b, rate_limit: {unit: day}, descriptors: [{key: c, rate_limit: {unit: day}}]}
      - {key: b-, rate_limit: {unit: day}}
      - {key: -b, rate_limit: {unit: day}}
`)
	if n := len(d.Rules()); n != 7 {
		t.Errorf("%d rules", n)
	}
}
