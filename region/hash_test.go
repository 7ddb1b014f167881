package region_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/test/golden"
)

func replaced(t *testing.T, src, old, with string) string {
	t.Helper()
	if strings.Count(src, old) != 1 {
		t.Fatalf("%q occurs %d times in the source, a change needs it once", old, strings.Count(src, old))
	}
	return strings.Replace(src, old, with, 1)
}

// TestHashOfPolicyFrom: what a domain's policy_from says is a fact that decisions rest on.
func TestHashOfPolicyFrom(t *testing.T) {
	hashes := map[string]string{}
	for _, from := range []string{
		"", "policy_from: {descriptor: plan}", "policy_from: {descriptor: tier}", "policy_from: {descriptor: plan, policies: [p]}",
		"policy_from: {descriptor: plan, policies: {gold: p}}", "policy_from: {descriptor: plan, policies: {gold: q}}",
	} {
		text := "regions: [{name: a, http: ':1'}]\npolicies: [{name: p, limits: [{name: l, units: 1, per: 1m}]}, {name: q, limits: [{name: l, units: 2, per: 1m}]}]\n" +
			"tenants: {default: {policy: p}}\nrls: {domains: {d: {file: f, tenant: [t], " + from + "}}}\n"
		hash := parse(t, text).Hash()
		if parse(t, strings.Replace(text, "file: f", "file: g", 1)).Hash() != hash {
			t.Errorf("%q has another hash where its file is elsewhere", from)
		}
		if other, same := hashes[hash]; same {
			t.Errorf("%q has the hash of %q", from, other)
		}
		hashes[hash] = from
	}
}

// Each row changes one fact of testdata/full.yaml that a decision rests on.
func TestHashChangesWithEachFact(t *testing.T) {
	src := string(read(t, "testdata/full.yaml"))
	seen := map[string]string{parse(t, src).Hash(): "the file itself"}
	for _, row := range []struct{ old, with string }{
		{"cluster: prod", "cluster: staging"},
		{"revision: 7", "revision: 8"},
		{"name: eu-west", "name: eu-north"},
		{"weight: 3", "weight: 2"},
		{"- name: watched", "- name: watched\n    on_store_loss: open"},
		{"on_partition: open", "on_partition: closed"},
		{"on_store_loss: closed", "on_store_loss: open"},
		{"on_overload: open", "on_overload: shed"},
		{"enforce_share: 12.5%", "enforce_share: 12%"},
		{"enforcement: observe\ntenants", "enforcement: enforce\ntenants"},
		{"name: wide", "name: broad"},
		{"units: 5,", "units: 6,"},
		{"per: 744h", "per: 743h"},
		{"algorithm: sliding_window", "algorithm: sliding_log"},
		{"scope: global\n        by", "scope: region\n        by"},
		{"one, units: 1, per: 1ms", "one, units: 1, per: 1ms, scope: global"},
		{"one, units: 1, per: 1ms", "one, units: 1, per: 1ms, scope: global, max_overshoot: 0%"},
		{"one, units: 1, per: 1ms", "one, units: 1, per: 1ms, scope: global, max_overshoot: 100%"},
		{"burst: 9", "burst: 10"},
		{"by: [user, token, ip]", "by: [user, ip]"},
		{`tier: "1"`, `tier: "2"`},
		{"default: {policy: watched}", "default: {policy: all}"},
		{"default: {policy: watched}", "other: {policy: watched}"},
		{"auth0|x: {policy: all, enforcement: observe}", "auth0|x: {policy: all}"},
		{"42: {policy: all", "43: {policy: all"},
		{"max_unknown: 0", "max_unknown: 1"},
		{"max_unknown: 0", "max_unknown: 0\nmax_values: 7"},
		{"header: x-tenant", "header: x-account"},
		{"header: X-User", "header: X-Member"},
		{"ip: {client_ip: true}", "ip: {header: X-Address}"},
		{", hash: true", ""},
		{"trusted_proxies: [10.0.0.0/8, ", "trusted_proxies: ["},
		{"missing: anonymous", "missing: deny"},
		{"header: x-plan", "header: x-tariff"},
		{"header: x-plan", "metadata: a/b"},
		{"gold: all", "gold: watched"},
		{"gold: all", "silver: all"},
		{`, policies: {gold: all, "7": watched}`, ""},
		{"case_sensitive: true", "case_sensitive: false"},
		{"missing: anonymous", "missing: anonymous\n  ipv6_prefix: 56"},
		{"name: search", "name: find"},
		{"methods: [POST, PUT]", "methods: [POST]"},
		{`"/search/*"`, "/search"},
		{"cost: 5", "cost: 4"},
		{", skip: true", ""},
	} {
		changed := replaced(t, src, row.old, row.with)
		if row.with == "algorithm: sliding_log" {
			changed = replaced(t, changed, "units: 1099511627776", "units: 1000")
		}
		hash := parse(t, changed).Hash()
		if before, same := seen[hash]; same {
			t.Errorf("%q → %q: the hash is that of %s", row.old, row.with, before)
		}
		seen[hash] = row.with
	}
}

// Each row changes what regions need not agree on, or how the file is written.
func TestHashIsIndifferentToTheRest(t *testing.T) {
	src := string(read(t, "testdata/full.yaml"))
	want := parse(t, src).Hash()
	if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(want) {
		t.Errorf("hash %q is not 16 hexadecimal digits", want)
	}
	for _, row := range []struct{ old, with string }{
		{"cluster: prod", "# a comment\n\ncluster:   \"prod\"   # another"},
		{"http: :8080", "http: :8081"},
		{"/run/redis", "/run/other"},
		{"mode: sentinel", "mode: 'sentinel'"},
		{`urls: ["tls://nats-us", "nats://[::1]:4222"]`, `urls: ["nats://elsewhere"]`},
		{"format: off", "format: triplet"},
		{"share_top: false", "share_top: true"},
		{"tokens_file: /t,", "tokens_file: /u,"},
		{"{name: shape, units: 5, per: 1s,", "{per: 1000ms, units: 5, name: shape,"},
		{"by: [user, token, ip]", "by:\n          - ip\n          - user\n          - token"},
		{`{tier: "1", route: login}`, `{route: login, tier: "1"}`},
		{"name: one, units: 1, per: 1ms", "name: one, units: 1, per: 1ms, scope: region, algorithm: sliding_log"},
		{"[POST, PUT]", "[PUT, POST]"},
		{`[10.0.0.0/8, "fd00::/8"]`, `["fd00::/8", 10.0.0.0/8]`},
		{
			"default: {policy: watched}\n  auth0|x: {policy: all, enforcement: observe}",
			"auth0|x: {enforcement: observe, policy: all}\n  default: {policy: watched}",
		},
		{"enforcement: observe\ntenants", "enforcement: observe\n    on_partition: share\ntenants"},
		{"one, units: 1, per: 1ms", "one, units: 1, per: 1ms, max_overshoot: none"},
		{"near: 87.5%", "near: 50%"},
		{"max_unknown: 0", "max_unknown: 0\nmax_values: 100000\nmax_override: 10x"},
		{"missing: anonymous", "missing: anonymous\n  ipv6_prefix: 64"},
	} {
		if got := parse(t, replaced(t, src, row.old, row.with)).Hash(); got != want {
			t.Errorf("%q → %q changes the hash", row.old, row.with)
		}
	}
}

func TestHashFollowsTheOrderThatDecides(t *testing.T) {
	const policies = "policies:\n  - {name: p, limits: [{name: a, units: 1, per: 1s}]}\n  - {name: q, limits: [{name: a, units: 2, per: 1s}]}\n"
	const swapped = "policies:\n  - {name: q, limits: [{name: a, units: 2, per: 1s}]}\n  - {name: p, limits: [{name: a, units: 1, per: 1s}]}\n"
	const regions = "regions: [{name: a, http: \":1\"}, {name: b, http: \":1\"}]\n"
	const reversed = "regions: [{name: b, http: \":1\"}, {name: a, http: \":1\"}]\n"
	const tenants = "tenants: {default: {policy: p}}\n"
	base := parse(t, regions+policies+tenants).Hash()
	if parse(t, regions+swapped+tenants).Hash() != base {
		t.Error("policies are found by name; their order is not a fact")
	}
	if parse(t, reversed+policies+tenants).Hash() == base {
		t.Error("parts follow the order of regions; it is a fact")
	}
}

// The hash of a released file never moves by itself: regions of two versions
// would take each other for drifted.
func TestHashIsStable(t *testing.T) {
	top := parse(t, string(read(t, "testdata/full.yaml")))
	golden.Compare(t, "full.hash", top.Hash()+"\n")
	if a, b := region.Default().Hash(), region.Default().Hash(); a != b {
		t.Errorf("one file, two hashes: %s, %s", a, b)
	}
}
