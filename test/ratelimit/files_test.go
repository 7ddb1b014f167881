package ratelimit_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/limiter"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/region"
)

// module is where their files are.
func module(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/envoyproxy/ratelimit").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// verdicts are whether they and we read a file.
func verdicts(text string) (theirs, ours bool, why string) {
	_, err := loadTheirs(text)
	d, mistakes := loadOurs(text)
	return err == nil, d != nil, fmt.Sprintf("they say %v, we say %v", err, mistakes)
}

// TestTheirFiles: the files of their tests and examples are read, or refused, by both.
func TestTheirFiles(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"test/config/*.yaml", "examples/ratelimit/config/*.yaml"} {
		some, err := filepath.Glob(filepath.Join(module(t), pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	if len(files) < 21 {
		t.Fatalf("%d files of theirs", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named := string(text)
		for _, domain := range []string{"test-domain", "mongo_cps", "rl"} {
			named = strings.Replace(named, "domain: "+domain+"\n", "domain: d\n", 1)
		}
		theirs, ours, why := verdicts(named)
		if filepath.Base(file) == "duplicate_domain.yaml" { // it is one only beside another file
			ours = theirs
		}
		switch {
		case theirs != ours:
			t.Errorf("%s: %s", file, why)
		case theirs && strings.Contains(named, "rate_limit"):
			p := &pair{keys: limiter.NewCacheKeyGenerator("")}
			p.theirs, _ = loadTheirs(named)
			p.ours, _ = loadOurs(named)
			for path := range strings.Lines(p.theirs.Dump()) {
				d := below(path)
				if found := rls.Match(p.ours, d.GetEntries()); found == nil {
					t.Errorf("%s, %s: %v has no rule", file, path, d)
				}
				p.compare(t, d)
			}
		}
	}
}

// below is a descriptor for a line of what they dump: "d.key_value.key: unit=…".
func below(path string) *common.RateLimitDescriptor {
	path, _, _ = strings.Cut(path, ":")
	d := &common.RateLimitDescriptor{}
	for _, step := range strings.Split(path, ".")[1:] {
		if start, ok := strings.CutSuffix(step, "*"); ok {
			step = start + "any"
		}
		key, value, _ := strings.Cut(step, "_")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// TestDifferences are the files that only they read, or only we. docs/coming-from.md has them all.
func TestDifferences(t *testing.T) {
	t.Parallel()
	deep := func(levels int) string {
		text := "rate_limit: {unit: day, requests_per_unit: 1}"
		for range levels {
			text = "descriptors: [{key: a, " + text + "}]"
		}
		return "{domain: d, " + text + "}"
	}
	for _, row := range []struct {
		why          string
		text         string
		theirs, ours bool
	}{
		{"a year is longer than 31 days", limit("unit: year, requests_per_unit: 1"), true, false},
		{"a key stands where it means nothing", "{domain: d, unit: day, descriptors: []}", true, false},
		{"a key stands where it means nothing", "{domain: d, descriptors: [{key: a, requests_per_unit: 1}]}", true, false},
		{"a key is given twice", "{domain: d, descriptors: [{key: a, key: b}]}", true, false},
		{"nested deeper than 15 descriptors", deep(16), true, false},
		{"nested as deep as that", deep(15), true, true},
		{"only true and false are booleans", limit("unit: day, requests_per_unit: 1, unlimited: off"), true, false},
		{"only plain decimals are numbers", limit("unit: day, requests_per_unit: 0x10"), true, false},
		{"tags are not read", "{domain: d, descriptors: [{key: !!str 1}]}", true, false},
		{"a second document", "{domain: d, descriptors: []}\n---\n{domain: d, descriptors: []}", true, false},
		{"more than 1 MiB", "{domain: d, descriptors: []} #" + strings.Repeat(" ", region.MaxBytes), true, false},
		{"newer than their version here", limit("unit: day, unit_multiplier: 2, requests_per_unit: 1"), false, true},
		{"of Envoy Gateway's files", "{domain: d, descriptors: [{key: a, metadata: {x: 1}}]}", false, true},
		{"any scalar is a value", "{domain: d, descriptors: [{key: a, value: 1.5}]}", false, true},
	} {
		if theirs, ours, why := verdicts(row.text); theirs != row.theirs || ours != row.ours {
			t.Errorf("%s: %.200s: they read it: %t, we: %t; %s", row.why, row.text, theirs, ours, why)
		}
	}
}

func limit(fields string) string {
	return "{domain: d, descriptors: [{key: a, rate_limit: {" + fields + "}}]}"
}

// TestWildcards: a * that is not at the end is none to them.
func TestWildcards(t *testing.T) {
	t.Parallel()
	const text = "{domain: d, descriptors: [{key: a, value: x*y, rate_limit: {unit: day, requests_per_unit: 1}}]}"
	p := &pair{keys: limiter.NewCacheKeyGenerator("")}
	p.theirs, _ = loadTheirs(text)
	p.ours, _ = loadOurs(text)
	for value, theirs := range map[string]bool{"x*y": true, "xy": false, "x1y": false} {
		d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "a", Value: value}}}
		if found := p.theirs.GetLimit(t.Context(), "d", d) != nil; found != theirs || rls.Match(p.ours, d.GetEntries()) == nil {
			t.Errorf("%s: they find it: %t, want %t", value, found, theirs)
		}
	}
}

// TestRefusals: files with odd values are read by both or by none, and where both read them the limits are the same.
func TestRefusals(t *testing.T) {
	t.Parallel()
	odd := func(t *rapid.T, name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
	rapid.Check(t, func(t *rapid.T) {
		key, value := odd(t, "key", "a", "a", "b*", "''", "~", "1", "true", "a_x"), odd(t, "value", "''", "x", "~", "y*", "10", "010", "true", "Yes", "é", "'*'")
		if key == "b*" {
			value = "~" // they know a * at the end alone
		}
		text := fmt.Sprintf("{domain: %s, descriptors: [{key: %s, value: %s, shadow_mode: %s, share_threshold: %s, rate_limit: "+
			"{unit: %s, requests_per_unit: %s, unlimited: %s, name: %s, replaces: %s}}, {key: %s, descriptors: %s}]%s}",
			odd(t, "domain", "d", "d", "d", "d", "''", "~"), key, value, odd(t, "shadow", "true", "false", "~"), odd(t, "share", "false", "false", "true"),
			odd(t, "unit", "day", "day", "Minute", "WEEK", "fortnight", "unknown", "''", "~", "1"),
			odd(t, "requests", "0", "5", "4294967295", "4294967296", "-1", "1.5", "abc", "[]", "'5'", "~"), odd(t, "unlimited", "false", "false", "true"),
			odd(t, "name", "n", "~", "1", "''"), odd(t, "replaces", "[]", "[]", "[{name: m}]", "[{name: n}]", "[{name: ''}]", "~", "[m]", "[{nam: m}]"),
			odd(t, "second", "a", "b", "c"), odd(t, "below", "~", "[]", "[a]", "x", "[{key: a}]"), odd(t, "more", "", "", "", ", name: x", ", keys: x", ", 1: x"))
		theirs, ours, why := verdicts(text)
		if theirs != ours {
			t.Fatalf("%s: %s", text, why)
		}
		if theirs {
			p := &pair{keys: limiter.NewCacheKeyGenerator("")}
			p.theirs, _ = loadTheirs(text)
			p.ours, _ = loadOurs(text)
			for range 5 {
				p.compare(t, drawn.Draw(t, "descriptor"))
			}
		}
	})
}
