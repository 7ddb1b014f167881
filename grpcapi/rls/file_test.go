package rls_test

import (
	"fmt"
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
		{"domain: d\ndescriptors: [{key: a, share_threshold: true}]", "2:41 needs a value that ends in *"},
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
		d, mistakes, _ := rls.Compile(&region.Domain{Name: "d"}, []byte(row.text))
		if d != nil || len(mistakes) != 1 {
			t.Errorf("%s\nis read with %v", row.text, mistakes)
			continue
		}
		if got := fmt.Sprintf("%d:%d %s", mistakes[0].Line, mistakes[0].Column, mistakes[0].Detail); !strings.HasPrefix(got, row.want) {
			t.Errorf("%s\n%s, want %s", row.text, got, row.want)
		}
	}
}

// TestBlanks: a key without a value is as if it were not there.
func TestBlanks(t *testing.T) {
	t.Parallel()
	compile(t, "domain: d\ndescriptors:\n")
	d := compile(t, "domain: d\ndescriptors:\n  - key: a\n    value:\n    shadow_mode:\n    descriptors: ~\n"+
		"    rate_limit: {unit: day, unit_multiplier: , requests_per_unit: , replaces: }\n  - key: b\n    rate_limit:\n")
	if r := d.Rules(); len(r) != 1 || r[0].Path != "a" || r[0].PerUnit != 0 || r[0].Multiplier != 1 {
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
