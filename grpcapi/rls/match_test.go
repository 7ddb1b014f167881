package rls_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/region"
)

// spec is a descriptor of a file. The rules of matching are written down here once more, as envoyproxy/ratelimit's README
// has them, in the slowest way.
type spec struct {
	Key    string     `yaml:"key"`
	Value  string     `yaml:"value,omitempty"`
	Share  bool       `yaml:"share_threshold"`
	Shadow bool       `yaml:"shadow_mode"`
	Quota  bool       `yaml:"quota_mode"`
	Limit  *limitSpec `yaml:"rate_limit,omitempty"`
	Below  []*spec    `yaml:"descriptors"`
}

type limitSpec struct {
	Number    int     `yaml:"requests_per_unit"` // and that of the rule in its file
	Unit      string  `yaml:"unit,omitempty"`
	Unlimited bool    `yaml:"unlimited"`
	Name      string  `yaml:"name"`
	Replaces  []other `yaml:"replaces"`
}

type other struct {
	Name string `yaml:"name"`
}

func (s *spec) joined() string {
	if s.Value == "" {
		return s.Key
	}
	return s.Key + "_" + s.Value
}

func file(level []*spec) string {
	text, err := yaml.Marshal(map[string]any{"domain": "d", "descriptors": level})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// glob reports whether a pattern, in which * stands for any text, is text.
func glob(pattern, text string) bool {
	switch {
	case pattern == "":
		return text == ""
	case pattern[0] == '*':
		return glob(pattern[1:], text) || text != "" && glob(pattern, text[1:])
	}
	return text != "" && pattern[0] == text[0] && glob(pattern[1:], text[1:])
}

// pick is the descriptor of a level that an entry has.
func pick(level []*spec, key, value string) *spec {
	for _, s := range level {
		if s.joined() == key+"_"+value {
			return s
		}
	}
	for _, s := range level {
		if strings.Contains(s.joined(), "*") && glob(s.joined(), key+"_"+value) {
			return s
		}
	}
	for _, s := range level {
		if s.joined() == key {
			return s
		}
	}
	return nil
}

type entry = *common.RateLimitDescriptor_Entry

// find is the descriptor whose limit applies to that of a request, and whom it counts it with.
func find(level []*spec, entries []entry) (of *spec, with string) {
	for i, e := range entries {
		s := pick(level, e.GetKey(), e.GetValue())
		if s == nil {
			return nil, ""
		}
		wild := strings.Contains(s.joined(), "*")
		if wild && !s.Share || !wild && s.Value == "" {
			with += fmt.Sprintf("%q=%q ", e.GetKey(), e.GetValue())
		}
		if i == len(entries)-1 && s.Limit != nil {
			of = s
		}
		level = s.Below
	}
	if of == nil {
		return nil, ""
	}
	return of, fmt.Sprint(of.Limit.Number, ": ", with)
}

var (
	keys   = rapid.SampledFrom([]string{"a", "b", "a_x", "c*"})
	values = rapid.SampledFrom([]string{"", "", "x", "y", "x*", "*", "x*y", "*y", "x*y*", "x_y"})
	asked  = rapid.SampledFrom([]string{"", "x", "y", "xy", "xzy", "xyz", "x*", "x_y", "z", "ü", "*"})
)

// level draws descriptors and what is below them, no two of one name.
func level(t *rapid.T, depth int, rules *int) (all []*spec) {
	for range rapid.IntRange(1, 4).Draw(t, "descriptors") {
		s := &spec{Key: keys.Draw(t, "key"), Value: values.Draw(t, "value")}
		if slices.ContainsFunc(all, func(o *spec) bool { return o.joined() == s.joined() }) {
			continue
		}
		s.Share = strings.Contains(s.joined(), "*") && rapid.Bool().Draw(t, "share")
		if rapid.IntRange(0, 3).Draw(t, "limited") > 0 {
			*rules++
			s.Shadow, s.Quota = rapid.Bool().Draw(t, "shadow"), rapid.Bool().Draw(t, "quota")
			s.Limit = &limitSpec{Number: *rules, Unit: "hour", Name: rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "name")}
			if rapid.IntRange(0, 5).Draw(t, "unlimited") == 0 {
				s.Limit.Unlimited, s.Limit.Unit = true, ""
			}
			if rapid.Bool().Draw(t, "replaces") {
				s.Limit.Replaces = []other{{"n3"}, {"n4"}}
			}
		}
		if depth > 1 && rapid.Bool().Draw(t, "nested") {
			s.Below = level(t, depth-1, rules)
		}
		all = append(all, s)
	}
	return all
}

func compile(t interface{ Fatalf(string, ...any) }, text string, tenant ...string) *rls.Domain {
	d, mistakes, _ := rls.Compile(&region.Domain{Name: "d", Tenant: tenant}, rls.Source{Text: []byte(text)})
	if d == nil {
		t.Fatalf("%v:\n%s", mistakes, text)
	}
	return d
}

var request = rapid.Custom(func(t *rapid.T) []entry {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) entry {
		return &common.RateLimitDescriptor_Entry{
			Key: rapid.SampledFrom([]string{"a", "a", "b", "a_x", "c", "cc"}).Draw(t, "key"), Value: asked.Draw(t, "value"),
		}
	}), 0, 3).Draw(t, "entries")
})

// counted is what a request is counted under.
func counted(d *rls.Domain, r *rls.Rule, entries []entry) string {
	return fmt.Sprintf("%s %s %q", rls.TenantOf(d, r, entries), r.Limit.Name, rls.Dimensions(nil, r, entries))
}

// TestMatch: over random files, the rule is found that the reference finds, with all that the file says of it, and two
// requests are counted together when the reference counts them together.
func TestMatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := 0
		specs := level(t, 3, &rules)
		text := file(specs)
		d := compile(t, text)
		type seen struct{ with, under string }
		var all []seen
		for range rapid.IntRange(10, 30).Draw(t, "requests") {
			entries := request.Draw(t, "request")
			want, with := find(specs, entries)
			got := rls.Match(d, entries)
			switch {
			case want == nil && got == nil:
				continue
			case want == nil || got == nil || got.PerUnit != uint32(want.Limit.Number):
				t.Fatalf("%v: found %+v, want %+v in\n%s", entries, got, want, text)
			case got.Unlimited != want.Limit.Unlimited || got.Shadow != want.Shadow || got.Quota != want.Quota || got.Name != want.Limit.Name ||
				!slices.EqualFunc(got.Replaces, want.Limit.Replaces, func(a string, b other) bool { return a == b.Name }):
				t.Fatalf("%v: %+v is not %+v in\n%s", entries, got, want, text)
			case got.Unlimited:
				continue
			}
			own := seen{with, counted(d, got, entries)}
			for _, other := range all {
				if (own.with == other.with) != (own.under == other.under) {
					t.Fatalf("%v: counted under %s as under %s, want %s and %s in\n%s", entries, own.under, other.under, own.with, other.with, text)
				}
			}
			all = append(all, own)
		}
	})
}

// TestTenantsSplitNothing: whose a descriptor is comes from values that are counted apart, so requests that are counted
// together are one tenant's.
func TestTenantsSplitNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := 0
		specs := level(t, 2, &rules)
		text := file(specs)
		d := compile(t, text, "b", "a")
		under := map[string]string{}
		for range rapid.IntRange(10, 30).Draw(t, "requests") {
			entries := request.Draw(t, "request")
			_, with := find(specs, entries)
			r := rls.Match(d, entries)
			if r == nil || r.Unlimited {
				continue
			}
			own := counted(d, r, entries)
			if before, ok := under[with]; ok && before != own {
				t.Fatalf("%v: counted under %s, and before under %s in\n%s", entries, own, before, text)
			}
			under[with] = own
		}
	})
}

// TestWildcards: a * stands for any text, wherever and as often as it is written.
func TestWildcards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringOfN(rapid.RuneFrom([]rune("ab*")), 1, 6, -1).Draw(t, "pattern")
		d := compile(t, file([]*spec{{Key: "k", Value: pattern, Limit: &limitSpec{Number: 1, Unit: "hour"}}}))
		for range 20 {
			text := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 7, -1).Draw(t, "text")
			got := rls.Match(d, []entry{{Key: "k", Value: text}}) != nil
			if want := glob(pattern, text); got != want {
				t.Fatalf("%q is %q: %t, want %t", text, pattern, got, want)
			}
		}
	})
}

// TestCountedTogether has the cases that values at random seldom make: a key with a *, and keys and values that are the
// same when joined.
func TestCountedTogether(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		rule     spec
		one, two *common.RateLimitDescriptor_Entry
		together bool
	}{
		{spec{Key: "k"}, &common.RateLimitDescriptor_Entry{Key: "k", Value: "v"}, &common.RateLimitDescriptor_Entry{Key: "k", Value: "w"}, false},
		{spec{Key: "k*"}, &common.RateLimitDescriptor_Entry{Key: "k1", Value: "v"}, &common.RateLimitDescriptor_Entry{Key: "k2", Value: "v"}, false},
		{spec{Key: "k*", Share: true}, &common.RateLimitDescriptor_Entry{Key: "k1", Value: "v"}, &common.RateLimitDescriptor_Entry{Key: "k2", Value: "w"}, true},
		{spec{Key: "k", Value: "v*"}, &common.RateLimitDescriptor_Entry{Key: "k", Value: "v1"}, &common.RateLimitDescriptor_Entry{Key: "k", Value: "v2"}, false},
		{spec{Key: "k", Value: "v*", Share: true}, &common.RateLimitDescriptor_Entry{Key: "k", Value: "v1"}, &common.RateLimitDescriptor_Entry{Key: "k", Value: "v*"}, true},
		{spec{Key: "k", Value: "v_w"}, &common.RateLimitDescriptor_Entry{Key: "k", Value: "v_w"}, &common.RateLimitDescriptor_Entry{Key: "k_v", Value: "w"}, true},
		{spec{Key: "k_v"}, &common.RateLimitDescriptor_Entry{Key: "k_v", Value: "v"}, &common.RateLimitDescriptor_Entry{Key: "k", Value: "v"}, false},
	} {
		row.rule.Limit = &limitSpec{Number: 1, Unit: "hour"}
		for _, tenant := range []string{"none", "k"} {
			d := compile(t, file([]*spec{&row.rule}), tenant)
			under := [2]string{}
			for i, e := range []entry{row.one, row.two} {
				r := rls.Match(d, []entry{e})
				if r == nil {
					t.Fatalf("%+v is none of %+v", e, row.rule)
				}
				under[i] = counted(d, r, []entry{e})
			}
			if (under[0] == under[1]) != row.together {
				t.Errorf("tenant %s, rule %+v: %v and %v are counted under %q, want together: %t", tenant, row.rule, row.one, row.two, under, row.together)
			}
		}
	}
}
