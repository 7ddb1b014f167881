package region

import (
	"cmp"
	"io/fs"
	"os"
	"strings"

	"github.com/regiond/regiond/internal/base/files"
	"github.com/regiond/regiond/quota"
)

// Load reads a topology file. Its warnings are those of Parse, and what the file leaves
// open to others: listeners that they reach without showing who they are, and secrets on
// this machine that all its users may read. The error is an *Invalid or of reading.
func Load(name string) (*Topology, []Problem, error) {
	src, err := files.Read(name)
	if err != nil {
		return nil, nil, err
	}
	return parseWith(name, src, func(t *Topology) []quota.FieldError { return append(t.Warnings(), t.exposures(os.Stat)...) })
}

// exposures are warnings with pointers as in topology.yaml. Files that are not here are
// not looked at: a topology is validated on other machines too.
func (t *Topology) exposures(stat func(string) (fs.FileInfo, error)) []quota.FieldError {
	var ps problems
	const (
		api = "whoever reaches the API of %s can spend and report for every tenant; " +
			"set access.tokens_file or client_ca_file, or listen on loopback"
		admin = "whoever reaches the admin listener of %s can delete usage and read profiles; " +
			"set access.admin_tokens_file or admin_client_ca_file, or listen on loopback"
	)
	open := t.Access.TokensFile == "" && t.Access.ClientCAFile == ""
	t.warnOpen(&ps, open, "/http", func(g *Region) string { return g.HTTP }, api)
	t.warnOpen(&ps, open, "/grpc", func(g *Region) string { return g.GRPC }, api)
	t.warnOpen(&ps, t.Access.AdminTokensFile == "" && t.Access.AdminClientCAFile == "", "/admin",
		func(g *Region) string { return g.Admin }, admin)
	for _, l := range t.RLS.Compat.listeners() {
		ps.when(open && !OnLoopback(l.addr), l.field,
			"whoever reaches %s can spend of every domain, or read its limits; set access.tokens_file or client_ca_file, or move it to loopback",
			quota.Clip(l.addr))
	}
	t.eachSecret(func(pointer, file string) {
		if file == "" {
			return
		}
		info, err := stat(file)
		ps.when(err == nil && info.Mode().Perm()&0o004 != 0, pointer, "%s is readable by every user of this machine; chmod o-r it (defaultMode: 0400 of a mounted secret)", quota.Clip(file))
	})
	return ps
}

// warnOpen adds one warning for the regions whose listener other hosts reach.
func (t *Topology) warnOpen(ps *problems, open bool, field string, listener func(*Region) string, format string) {
	var names []string
	at := ""
	for i := range t.Regions {
		if g := &t.Regions[i]; open && listener(g) != "" && !OnLoopback(listener(g)) {
			names = append(names, g.Name)
			at = cmp.Or(at, item("/regions", i)+field)
		}
	}
	ps.when(len(names) > 0, at, format, strings.Join(names, ", "))
}

// eachSecret calls add with the path of each secret, "" for none. Lists of tokens are not
// among them: they hold hashes.
func (t *Topology) eachSecret(add func(pointer, file string)) {
	add("/access/key_file", t.Access.KeyFile)
	add("/access/admin_key_file", t.Access.AdminKeyFile)
	for i := range t.Regions {
		g, at := &t.Regions[i], item("/regions", i)
		if g.Gossip != nil {
			add(at+"/gossip/key_file", g.Gossip.KeyFile)
		}
		add(at+"/redis/password_file", g.Redis.PasswordFile)
		add(at+"/redis/sentinel_password_file", g.Redis.SentinelPasswordFile)
		add(at+"/nats/creds_file", g.NATS.CredsFile)
		add(at+"/nats/password_file", g.NATS.PasswordFile)
		for name, c := range map[string]*TLS{"/redis": g.Redis.TLS, "/nats": g.NATS.TLS} {
			if c != nil {
				add(at+name+"/tls/key_file", c.KeyFile)
			}
		}
	}
}
