package warnings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/warnings"
)

// TestExposures: what a file leaves open is said by OfFile, once for all regions.
func TestExposures(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"open": 0o644, "closed": 0o640} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	const rest = `
policies: [{name: p, limits: [{name: l, units: 100, per: 1s, by: [user]}]}]
tenants: {default: {policy: p}}
`
	forward := func(dimension, proxies string) string {
		return "regions: [{name: a, http: 127.0.0.1:1}]" + rest + "forward_auth: {tenant: {header: X-Tenant}, dimensions: {user: " + dimension + "}, trusted_proxies: [" + proxies + "]}\n"
	}
	for _, row := range []struct {
		name, src string
		want      []string // beginnings of pointer and warning
	}{
		{"loopback", "regions: [{name: a, http: 127.0.0.1:1, admin: localhost:2}]" + rest, nil},
		{
			"open", "regions: [{name: a, http: 127.0.0.1:1, nats: {urls: ['nats://b']}}, {name: b, http: 10.0.0.1:1, admin: ':2', gossip: {bind: '127.0.0.1:5', advertise: 'b:5'}, nats: {urls: ['nats://b']}}, {name: c, http: ':1', nats: {urls: ['nats://b']}}]" + rest,
			[]string{"/regions/1/http: whoever reaches the API of b, c can", "/regions/1/admin: whoever reaches the admin listener of b can"},
		},
		{"open to gateways", "regions: [{name: a, http: 127.0.0.1:1, grpc: ':3'}]" + rest, []string{"/regions/0/grpc: whoever reaches the API of a can"}},
		{
			"open to scripts", "regions: [{name: a, http: 127.0.0.1:1}]" + rest + "rls: {compat: {http: '127.0.0.1:5'}}\n",
			[]string{"/rls/compat/debug: whoever reaches 0.0.0.0:6070 can", "/rls/compat/grpc: whoever reaches 0.0.0.0:8081 can"},
		},
		{
			"open to plans", "regions: [{name: a, http: 127.0.0.1:1, grpc: ':3'}]" + rest + "forward_auth: {tenant: {header: X-Tenant}, policy_from: {header: X-Plan}}\n",
			[]string{"/regions/0/grpc: whoever reaches the API of a can", "/forward_auth/policy_from: whoever reaches the API of a says itself"},
		},
		{
			"open to plans of descriptors", "regions: [{name: a, http: 127.0.0.1:1, grpc: ':3'}]" + rest + "rls: {domains: {d: {file: f, tenant: [t], policy_from: {descriptor: plan}}}}\n",
			[]string{"/regions/0/grpc: whoever reaches the API of a can", "/rls/domains/d/policy_from: whoever reaches the API of a says itself"},
		},
		{"plans of descriptors", "regions: [{name: a, http: 127.0.0.1:1, grpc: '127.0.0.1:3'}]" + rest + "rls: {domains: {d: {file: f, tenant: [t], policy_from: {descriptor: plan}}}}\n", nil},
		{"plans of gateways", "regions: [{name: a, http: ':1'}]" + rest + "forward_auth: {tenant: {header: X-Tenant}, policy_from: {header: X-Plan}}\naccess: {tokens_file: /t}\n", nil},
		{"tokens", "regions: [{name: a, http: ':1', admin: ':2', grpc: ':3'}]" + rest + "access: {tokens_file: /t, admin_tokens_file: /t}\n", nil},
		{"certificates", "regions: [{name: a, http: ':1'}]" + rest + "access: {client_ca_file: /c, cert_file: /c, key_file: DIR/closed}\n", nil},
		{"admin certificates", "regions: [{name: a, http: 'localhost:1', admin: ':2'}]" + rest + "access: {admin_client_ca_file: /c, admin_client_names: [ops], admin_cert_file: /c, admin_key_file: DIR/closed}\n", nil},
		{"an open admin key", "regions: [{name: a, http: 'localhost:1'}]" + rest + "access: {admin_cert_file: /c, admin_key_file: DIR/open}\n", []string{"/access/admin_key_file: DIR/open is readable"}},
		{
			"secrets", "regions: [{name: a, http: 127.0.0.1:1, redis: {addrs: ['r:1'], password_file: DIR/open, tls: {cert_file: DIR/open, key_file: DIR/open}}}]" + rest + "access: {cert_file: DIR/open, key_file: DIR/open, tokens_file: DIR/open}\n",
			[]string{"/regions/0/redis/password_file: DIR/open is readable", "/regions/0/redis/tls/key_file: DIR/open is readable", "/access/key_file: DIR/open is readable"},
		},
		{
			"secrets of NATS", "regions: [{name: a, http: 127.0.0.1:1, nats: {urls: ['nats://b'], username: a, password_file: DIR/open}}]" + rest,
			[]string{"/regions/0/nats/password_file: DIR/open is readable"},
		},
		{"closed secrets of NATS", "regions: [{name: a, http: 127.0.0.1:1, nats: {urls: ['nats://b'], username: a, password_file: DIR/closed}}]" + rest, nil},
		{"closed secrets", "regions: [{name: a, http: 127.0.0.1:1, redis: {addrs: ['r:1'], password_file: DIR/closed}}]" + rest + "access: {cert_file: DIR/open, key_file: DIR/absent}\n", nil},
		{"all proxies", forward("{client_ip: true}", "0.0.0.0/0"), []string{"/forward_auth/trusted_proxies/0: 0.0.0.0/0 trusts every client"}},
		{"a secret in clear", forward("{header: authorization}", "10.0.0.0/8"), []string{"/forward_auth/dimensions/user: header Authorization is a secret"}},
		{"a hashed secret", forward("{header: Authorization, hash: true}", "10.0.0.0/8"), nil},
		{"a secret tenant", strings.Replace(forward("{header: X-User}", "10.0.0.0/8"), "X-Tenant", "cookie", 1), []string{"/forward_auth/tenant/header: header Cookie is a secret"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "topology.yaml")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(row.src, "DIR", dir)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, found, err := region.Load(file, warnings.OfFile)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range found {
				got = append(got, strings.ReplaceAll(w.Pointer+": "+w.Detail, dir, "DIR"))
			}
			if len(got) != len(row.want) {
				t.Fatalf("got %q, want %q", got, row.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], row.want[i]) {
					t.Errorf("got %q, want %q", got[i], row.want[i])
				}
			}
		})
	}
	if _, _, err := region.Load(filepath.Join(dir, "absent"), nil); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}
