package region_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/warnings"
	"github.com/regiond/regiond/test/golden"
)

// Each file of testdata/topology is one way of being wrong, or of being warned,
// and the text beside it is the whole output of `regiond validate`.
func TestEveryMistakeHasItsMessage(t *testing.T) {
	files, err := filepath.Glob("testdata/topology/*.yaml")
	if err != nil || len(files) < 35 {
		t.Fatalf("found %d files (%v), want at least 35", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			got := report(t, file)
			if got == "" {
				t.Fatal("nothing is wrong with it and nothing is warned of")
			}
			golden.Compare(t, "topology/"+strings.TrimSuffix(filepath.Base(file), ".yaml")+".txt", got)
		})
	}
}

// report is what is found in a file: its mistakes, or its warnings.
func report(t *testing.T, file string) string {
	t.Helper()
	top, src, err := region.Parse(filepath.Base(file), read(t, file))
	if err != nil {
		var invalid *region.Invalid
		if !errors.As(err, &invalid) || len(invalid.Problems) == 0 || top != nil || src != nil {
			t.Fatalf("Parse = %v, %v, %#v: an error is an *Invalid with mistakes and comes alone", top, src, err)
		}
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, w := range src.Problems(warnings.Of(top)) {
		fmt.Fprintln(&b, "warning: "+w.Text(filepath.Base(file)))
	}
	return b.String()
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(t testing.TB, src string) *region.Topology {
	t.Helper()
	top, _, err := region.Parse("t.yaml", []byte(src))
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, src)
	}
	return top
}

func TestTheRepositorysTopologyIsWithoutMistakeOrWarning(t *testing.T) {
	top, found, err := region.Load("../topology.yaml", warnings.Of)
	if err != nil || len(found) > 0 {
		t.Fatalf("warnings %v, error %v", found, err)
	}
	var names []string
	for _, r := range top.Regions {
		names = append(names, r.Name)
		if r.Redis.Embedded || r.NATS.Embedded || r.Gossip == nil || r.HTTP != "0.0.0.0:8080" || r.Admin != "0.0.0.0:9090" {
			t.Errorf("region %s is not one of compose: %+v", r.Name, r)
		}
	}
	if diff := cmp.Diff([]string{"eu-west", "us-east", "ap-south"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultRunsOnLoopbackInMemory(t *testing.T) {
	got := region.Default()
	want := &region.Topology{
		Regions: []region.Region{{
			Name: "local", Weight: 1, HTTP: "127.0.0.1:8080", Admin: "127.0.0.1:9090",
			Redis: region.Redis{Embedded: true}, NATS: region.NATS{Embedded: true},
		}},
		Policies: []quota.Policy{{Name: "standard", EnforcePercent: -1, Limits: []quota.Limit{
			{Name: "burst", Units: 20, Window: time.Second},
			{Name: "sustained", Units: 600, Window: time.Minute},
		}}},
		Tenants:    region.Tenants{Default: &quota.Tenant{Policy: "standard"}, Listed: map[string]quota.Tenant{}},
		MaxUnknown: 100000,
		ShareTop:   true,
		MaxValues:  100000,
		Headers:    quota.Headers{Format: "draft-11", XReset: "delta"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Every field of the schema once, with a value that is not its default.
func TestEveryFieldArrives(t *testing.T) {
	got := parse(t, string(read(t, "testdata/full.yaml")))
	observe, enforce := quota.Observe, quota.Enforce
	want := &region.Topology{
		Cluster: "prod", Revision: 7,
		Regions: []region.Region{
			{
				Name: "eu-west", Weight: 3, HTTP: ":8080", Admin: "[::1]:9000",
				Gossip: &region.Gossip{Bind: "0.0.0.0:7946", Advertise: "eu.example.net:7946", KeyFile: "/run/gossip"},
				Redis: region.Redis{
					Addrs: []string{"s1:26379", "s2:26379"}, Mode: quota.RedisSentinel, Master: "main",
					Username: "rl", PasswordFile: "/run/redis", TLS: &region.TLS{CAFile: "ca", CertFile: "c", KeyFile: "k"},
					SentinelUsername: "watch", SentinelPasswordFile: "/run/sentinel",
				},
				NATS: region.NATS{Embedded: true, Gateway: "eu.example.net:7947"},
			},
			{
				Name: "us-east", Weight: 1, HTTP: "127.0.0.1:0", Admin: region.DefaultAdmin,
				Gossip: &region.Gossip{Bind: ":7946", Advertise: "us.example.net:7946", KeyFile: "/run/gossip"},
				Redis:  region.Redis{Addrs: []string{"10.0.0.1:6379"}, Mode: quota.RedisStandalone, TLS: &region.TLS{}},
				NATS:   region.NATS{URLs: []string{"tls://nats-us", "nats://[::1]:4222"}, Username: "us", PasswordFile: "/run/nats"},
			},
			{
				Name: "ap-south", Weight: 1, HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0",
				Gossip: &region.Gossip{Bind: "127.0.0.1:7946", Advertise: "ap.example.net:7946", KeyFile: "/run/gossip"},
				Redis:  region.Redis{Embedded: true}, NATS: region.NATS{Embedded: true, Gateway: "gw:1"},
			},
		},
		Policies: []quota.Policy{
			{
				Name: "all", OnPartition: quota.FailOpen, OnStoreLoss: quota.FailClosed, OnOverload: quota.OverloadOpen, EnforcePercent: 12.5,
				Limits: []quota.Limit{
					{Name: "shape", Units: 5, Window: time.Second, Algorithm: quota.GCRA, Burst: 9},
					{
						Name: "wide", Units: 1 << 40, Window: 744 * time.Hour, Algorithm: quota.SlidingWindow,
						Scope: quota.ScopeGlobal, By: []string{"ip", "token", "user"},
						When: []quota.Match{{Dimension: "route", Value: "login"}, {Dimension: "tier", Value: "1"}},
					},
				},
			},
			{Name: "watched", Enforcement: quota.Observe, EnforcePercent: -1, Limits: []quota.Limit{
				{Name: "one", Units: 1, Window: time.Millisecond, Near: 87.5},
			}},
		},
		Tenants: region.Tenants{Default: &quota.Tenant{Policy: "watched"}, Listed: map[string]quota.Tenant{
			"auth0|x": {Policy: "all", Enforcement: &observe},
			"42":      {Policy: "all", Enforcement: &enforce},
			"true":    {Policy: "watched"},
			"a/b~c":   {Policy: "watched"},
		}},
		MaxUnknown: 0,
		MaxValues:  100000,
		ForwardAuth: &quota.ForwardAuth{
			Tenant: quota.TenantSource{Header: "X-Tenant"},
			Dimensions: []quota.DimensionSource{
				{Name: "ip", ClientIP: true},
				{Name: "tier", Header: "X-Tier"},
				{Name: "token", Header: "Authorization", Hash: true},
				{Name: "user", Header: "X-User"},
			},
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
			Missing:        quota.MissingAnonymous,
			PolicyFrom:     &quota.PolicySource{Header: "X-Plan", Policies: map[string]string{"gold": "all", "7": "watched"}},
			CaseSensitive:  true,
			IPv6Prefix:     quota.DefaultIPv6Prefix,
			Routes: []quota.Route{
				{Name: "login", Methods: []string{"POST", "PUT"}, Path: "/login", Cost: 1},
				{Name: "search", Path: "/search/*", Cost: 5},
				{Name: "status", Path: "/status", Skip: true},
			},
		},
		Headers: quota.Headers{Format: quota.HeadersOff, XReset: quota.ResetEpoch},
		Access: region.Access{
			TokensFile: "/t", CertFile: "/c", KeyFile: "/k", ClientCAFile: "/ca", AdminTokensFile: "/at",
			AdminCertFile: "/ac", AdminKeyFile: "/ak", AdminClientCAFile: "/aca", AdminClientNames: []string{"ops"},
		},
		LogLevel: slog.LevelWarn,
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if r, ok := got.Region("us-east"); !ok || r != &got.Regions[1] {
		t.Error("Region does not find us-east in place")
	}
	if _, ok := got.Region("nowhere"); ok {
		t.Error("Region finds what is not there")
	}
}

// What a limit with a bound is held for, and so for how long its loans matter, is the max_ttl of its policy.
func TestHeldFor(t *testing.T) {
	for maxTTL, want := range map[string]time.Duration{"": quota.DefaultMaxTTL, "max_ttl: 30s, ": 30 * time.Second} {
		top, _, err := region.Parse("topology.yaml", []byte(`
regions: [{name: one, http: 127.0.0.1:8080, redis: {addrs: ["redis.one:6379"]}}]
policies:
  - {name: llm, `+maxTTL+`limits: [
      {name: tokens, units: 100, per: 1m, scope: global, counts: tokens, max_overshoot: 0%},
      {name: requests, units: 100, per: 1m, scope: global, max_overshoot: 0%}]}
tenants: {default: {policy: llm}}
`))
		if err != nil {
			t.Fatal(err)
		}
		if l := top.Policies[0].Limits; l[0].HeldFor != want || l[1].HeldFor != 0 {
			t.Errorf("%q: tokens are held for %v and requests for %v, want %v and 0", maxTTL, l[0].HeldFor, l[1].HeldFor, want)
		}
	}
}
