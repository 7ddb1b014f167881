// Package ratelimit_test holds grpcapi and grpcapi/rls beside envoyproxy/ratelimit itself: its loader and its matching, its
// client, its server and its examples. All of it comes as a module, which the module of regiond does without.
package ratelimit_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	theirs "github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/limiter"
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
	gostats "github.com/lyft/gostats"
	"github.com/sirupsen/logrus"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/region"
)

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// loadTheirs is their reading of a file, or what they refuse it with.
func loadTheirs(text string) (c theirs.RateLimitConfig, refusal error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case theirs.RateLimitConfigError:
			refusal = p
		default:
			panic(p)
		}
	}()
	file := theirs.RateLimitConfigToLoad{Name: "file", ConfigYaml: theirs.ConfigFileContentToYaml("file", text)}
	manager := stats.NewStatManager(gostats.NewStore(gostats.NewNullSink(), false), settings.Settings{})
	return theirs.NewRateLimitConfigImpl([]theirs.RateLimitConfigToLoad{file}, manager, false), nil
}

// loadOurs is our reading, of a file for domain d, or our mistakes.
func loadOurs(text string) (*rls.Domain, []region.Problem) {
	d, mistakes, _ := rls.Compile(&region.Domain{Name: "d"}, rls.Source{Text: []byte(text)})
	return d, mistakes
}

// pair is a file as both read it.
type pair struct {
	theirs theirs.RateLimitConfig
	ours   *rls.Domain
	keys   limiter.CacheKeyGenerator
}

// compare returns what is counted under which key, theirs and ours, and fails unless both find the same rule.
func (p *pair) compare(t interface {
	Helper()
	Fatalf(string, ...any)
}, d *common.RateLimitDescriptor,
) (theirKey, ourKey string) {
	t.Helper()
	want := p.theirs.GetLimit(context.Background(), "d", d)
	got := rls.Match(p.ours, d.GetEntries())
	switch {
	case want == nil && got == nil:
		return "", ""
	case want == nil || got == nil:
		t.Fatalf("%v: we find %+v, they find %+v", d, got, want)
	case want.Unlimited && got.Unlimited:
		return "", ""
	case want.Limit.GetRequestsPerUnit() != got.PerUnit || int32(want.Limit.GetUnit()) != got.Unit || want.Limit.GetName() != got.Name ||
		want.Unlimited != got.Unlimited || want.ShadowMode != got.Shadow || want.QuotaMode != got.Quota || !slices.Equal(want.Replaces, got.Replaces):
		t.Fatalf("%v: we find %+v, they find %+v", d, got, want)
	}
	return p.keys.GenerateCacheKey("d", d, want, 0).Key, fmt.Sprintf("%s %q", got.Limit.Name, rls.Dimensions(nil, got, d.GetEntries()))
}

// level draws the descriptors of a level as YAML. Each limit has another requests_per_unit.
func level(t *rapid.T, indent string, depth int, rules *int, text *strings.Builder) {
	taken := map[string]bool{}
	for range rapid.IntRange(1, 4).Draw(t, "descriptors") {
		key := rapid.SampledFrom([]string{"a", "b", "user_id"}).Draw(t, "key")
		value := rapid.SampledFrom([]string{"", "", "x", "y", "x*", "xy*", "*"}).Draw(t, "value")
		if taken[key+value] {
			continue
		}
		taken[key+value] = true
		fmt.Fprintf(text, "%s- key: %s\n", indent, key)
		if value != "" {
			fmt.Fprintf(text, "%s  value: %q\n", indent, value)
		}
		if strings.HasSuffix(value, "*") {
			fmt.Fprintf(text, "%s  share_threshold: %t\n", indent, rapid.Bool().Draw(t, "share"))
		}
		flag := rapid.SampledFrom([]string{"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric"}).Draw(t, "flag")
		fmt.Fprintf(text, "%s  %s: %t\n", indent, flag, rapid.Bool().Draw(t, "set"))
		if rapid.IntRange(0, 3).Draw(t, "limited") > 0 {
			*rules++
			unit := rapid.SampledFrom([]string{"unit: second", "unit: MINUTE", "unit: Hour", "unit: day", "unit: week", "unit: month", "unlimited: true"}).Draw(t, "unit")
			names := rapid.Permutation([]string{"", "m", "n"}).Draw(t, "names")
			fmt.Fprintf(text, "%s  rate_limit: {%s, requests_per_unit: %d, name: %q", indent, unit, *rules, names[0])
			if names[1] != "" && rapid.Bool().Draw(t, "replaces") {
				fmt.Fprintf(text, ", replaces: [{name: %s}]", names[1])
			}
			text.WriteString("}\n")
		}
		if depth > 1 && rapid.Bool().Draw(t, "nested") {
			fmt.Fprintf(text, "%s  descriptors:\n", indent)
			level(t, indent+"    ", depth-1, rules, text)
		}
	}
}

// files are of domain d.
var files = rapid.Custom(func(t *rapid.T) string {
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	rules := 0
	level(t, "  ", 3, &rules, &text)
	return text.String()
})

var drawn = rapid.Custom(func(t *rapid.T) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for range rapid.IntRange(0, 3).Draw(t, "entries") {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{
			Key:   rapid.SampledFrom([]string{"a", "b", "user_id", "user"}).Draw(t, "key"),
			Value: rapid.SampledFrom([]string{"", "x", "y", "xy", "xyz", "z", "id", "x*", "*", "ü"}).Draw(t, "value"),
		})
	}
	return d
})

// eachFile is how many descriptors are matched in each of rapid's 100 files: 10,000 in all.
const eachFile = 100

// TestMatching: under random files, we find the rule that they find for a descriptor, with its limit and all that the file
// says of it, and count two descriptors together when they do.
func TestMatching(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := files.Draw(t, "file")
		p := &pair{keys: limiter.NewCacheKeyGenerator("")}
		var err error
		if p.theirs, err = loadTheirs(text); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		var mistakes []region.Problem
		if p.ours, mistakes = loadOurs(text); p.ours == nil {
			t.Fatalf("%v: %s", mistakes, text)
		}
		if theirs, ours := strings.Count(p.theirs.Dump(), "\n"), len(p.ours.Rules()); theirs != ours {
			t.Fatalf("we read %d rules, they read %d: %s", ours, theirs, text)
		}
		under := map[string]string{}
		for range eachFile {
			d := drawn.Draw(t, "descriptor")
			theirKey, ourKey := p.compare(t, d)
			if theirKey == "" {
				continue
			}
			for a, b := range under {
				if (a == theirKey) != (b == ourKey) {
					t.Fatalf("%v: counted under %s and %s, before it under %s and %s, in\n%s", d, theirKey, ourKey, a, b, text)
				}
			}
			under[theirKey] = ourKey
		}
	})
}
