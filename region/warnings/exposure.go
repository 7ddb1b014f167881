package warnings

import (
	"os"
	"slices"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// OfFile is Of, and what the file leaves open to others: listeners that they reach without showing who they are, and secrets
// on this machine that all its users may read. Files that are not here are not looked at: a topology is validated on other
// machines too.
func OfFile(top *region.Topology) []quota.FieldError {
	t := topology{Topology: top, FieldErrors: Of(top)}
	const (
		api = "whoever reaches the API of %s can spend and report for every tenant; " +
			"set access.tokens_file or client_ca_file, or listen on loopback"
		admin = "whoever reaches the admin listener of %s can delete usage and read profiles; " +
			"set access.admin_tokens_file or admin_client_ca_file, or listen on loopback"
		saysItself = "whoever reaches the API of %s says itself which policy it has; " +
			"set access.tokens_file or client_ca_file, so that only the gateway can"
	)
	open := t.Access.TokensFile == "" && t.Access.ClientCAFile == ""
	openAdmin := t.Access.AdminTokensFile == "" && t.Access.AdminClientCAFile == ""
	t.open(open, "/http", func(g *region.Region) string { return g.HTTP }, api)
	t.open(open, "/grpc", func(g *region.Region) string { return g.GRPC }, api)
	t.open(openAdmin, "/admin", func(g *region.Region) string { return g.Admin }, admin)
	if f := t.ForwardAuth; f != nil && f.PolicyFrom != nil {
		names, _ := t.those(func(_ int, g *region.Region) bool { return reached(g.HTTP, g.GRPC) })
		t.When(open && names != "", "/forward_auth/policy_from", saysItself, names)
	}
	compat := t.RLS.Compat
	for i := range t.RLS.Domains {
		names, _ := t.those(func(_ int, g *region.Region) bool { return reached(g.GRPC, compat.HTTP, compat.GRPC) })
		d := &t.RLS.Domains[i]
		t.When(open && names != "" && d.PolicyFrom != nil, d.At+"/policy_from", saysItself, names)
	}
	for field, addr := range map[string]string{"http": compat.HTTP, "grpc": compat.GRPC, "debug": compat.Debug} {
		t.When(open && reached(addr), "/rls/compat/"+field,
			"whoever reaches %s can spend of every domain, or read its limits; set access.tokens_file or client_ca_file, or move it to loopback",
			quota.Clip(addr))
	}
	secret := func(pointer, file string) { // lists of tokens are none: they hold hashes
		if file == "" {
			return
		}
		info, err := os.Stat(file)
		t.When(err == nil && info.Mode().Perm()&0o004 != 0, pointer, "%s is readable by every user of this machine; chmod o-r it (defaultMode: 0400 of a mounted secret)", quota.Clip(file))
	}
	secret("/access/key_file", t.Access.KeyFile)
	secret("/access/admin_key_file", t.Access.AdminKeyFile)
	for i := range t.Regions {
		g, at := &t.Regions[i], quota.Item("/regions", i)
		if g.Gossip != nil {
			secret(at+"/gossip/key_file", g.Gossip.KeyFile)
		}
		secret(at+"/redis/password_file", g.Redis.PasswordFile)
		secret(at+"/redis/sentinel_password_file", g.Redis.SentinelPasswordFile)
		secret(at+"/nats/creds_file", g.NATS.CredsFile)
		secret(at+"/nats/password_file", g.NATS.PasswordFile)
		for name, c := range map[string]*region.TLS{"/redis": g.Redis.TLS, "/nats": g.NATS.TLS} {
			if c != nil {
				secret(at+name+"/tls/key_file", c.KeyFile)
			}
		}
	}
	return t.FieldErrors
}

// reached reports whether others reach one of these listeners, of which "" is none.
func reached(addrs ...string) bool {
	return slices.ContainsFunc(addrs, func(addr string) bool { return addr != "" && !region.OnLoopback(addr) })
}

func (t *topology) open(open bool, field string, listener func(*region.Region) string, format string) {
	names, first := t.those(func(_ int, g *region.Region) bool { return open && reached(listener(g)) })
	t.When(names != "", quota.Item("/regions", first)+field, format, names)
}
