package rls_test

import (
	"bytes"
	"testing"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// FuzzFile holds for every file: no panic; either mistakes and no domain, or a policy that obeys its own rules and has a
// limit for each rule that counts. Mistakes and warnings point into the file.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		"domain: d\ndescriptors: []\n",
		"domain: d\ndescriptors: [{key: a, value: b, rate_limit: {unit: minute, requests_per_unit: 3}}]\n",
		"domain: d\ndescriptors:\n  - key: a\n    share_threshold: true\n    descriptors:\n      - {key: b, value: '*', rate_limit: {unlimited: true}}\n",
		"domain: d\ndescriptors: [{key: a, rate_limit: {unit: year, unit_multiplier: 0, requests_per_unit: 4294967296, replaces: [{name: }]}}]\n",
		"domain: e\ndescriptors: [{key: a, detailed_metric: true, rate_limit: {unit: WEEK, requests_per_unit: 4294967295}}]\n",
		"domain: d\ndescriptors: &x [{key: a_b}, {key: a, value: b}, {key: '', metadata: {a: [1.5]}}]\n",
		"name: n\ndomain: d\ndescriptors: [{key: ü, quota_mode: true, rate_limit: {name: x, unit: month, requests_per_unit: 0}}]\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		d, mistakes, warnings := rls.Compile(&region.Domain{Name: "d", Scope: quota.ScopeGlobal, MaxOvershoot: 10}, rls.Source{Text: src})
		if (d == nil) != (len(mistakes) > 0) {
			t.Fatalf("%v, and yet %v", d, mistakes)
		}
		lines := bytes.Count(src, []byte("\n")) + bytes.Count(src, []byte("\r")) + 1
		for _, p := range append(mistakes, warnings...) {
			if p.Line < 1 || p.Line > lines+1 || p.Column < 1 || p.Column > len(src)+2 || p.Detail == "" {
				t.Fatalf("%+v is not in a file of %d lines", p, lines)
			}
		}
		if d == nil {
			return
		}
		counting := 0
		for _, r := range d.Rules() {
			if r.Limit != nil && r.PerUnit > 0 {
				counting++
			}
		}
		if wrong := d.Policy().ValidateLimits(); counting != len(d.Policy().Limits) || len(wrong) > 0 {
			t.Fatalf("%d rules count, of %d limits: %v", counting, len(d.Policy().Limits), wrong)
		}
		again, _, _ := rls.Compile(&region.Domain{Name: "d"}, rls.Source{Text: append([]byte("# a comment\n"), bytes.TrimPrefix(src, []byte("\ufeff"))...)})
		if again == nil {
			return // a directive comes first
		}
		for i, r := range again.Rules() {
			if r.Limit != nil && r.Limit.Name != d.Rules()[i].Limit.Name {
				t.Fatalf("a comment changes the name of limit %s to %s", d.Rules()[i].Limit.Name, r.Limit.Name)
			}
		}
	})
}
