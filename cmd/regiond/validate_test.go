package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/regiond/regiond/internal/cli"
	"github.com/regiond/regiond/test/authority"
)

// namesFiles is a topology that names every file there can be. Its NATS is not the embedded one.
const namesFiles = `
access:
  tokens_file: DIR/tokens
  admin_tokens_file: DIR/admin-tokens
  cert_file: DIR/cert
  key_file: DIR/key
  client_ca_file: DIR/client-ca
  admin_cert_file: DIR/admin-cert
  admin_key_file: DIR/admin-key
  admin_client_ca_file: DIR/admin-ca
  admin_client_names: [op]
regions:
  - name: town
    http: 127.0.0.1:0
    admin: 127.0.0.1:0
    gossip: {bind: "127.0.0.1:0", advertise: "127.0.0.1:7946", key_file: DIR/shared}
    redis:
      {mode: sentinel, master: m, addrs: ["127.0.0.1:1"], username: u, password_file: DIR/redis, sentinel_username: u, sentinel_password_file: DIR/sentinel,
       tls: {ca_file: DIR/redis-ca, cert_file: DIR/redis-cert, key_file: DIR/redis-key}}
    nats: {urls: ["nats://127.0.0.1:1"], NATSLOGIN, tls: {ca_file: DIR/nats-ca, cert_file: DIR/nats-cert, key_file: DIR/nats-key}}
policies: [{name: p, limits: [{name: l, units: 1, per: 1m}]}]
tenants: {default: {policy: p}}
`

// TestValidateAsServe: what is wrong with any file that a topology names is refused by serve and by validate, in the same words.
func TestValidateAsServe(t *testing.T) {
	a := authority.New(t, "authority")
	cert, key := a.Issue(t, "regiond")
	_, otherKey := a.Issue(t, "another")
	const token = "ci 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n"
	shared := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	zero := base64.StdEncoding.EncodeToString(make([]byte, 32))
	good := map[string]string{"redis": "secret\n", "sentinel": "secret", "nats": "secret", "tokens": token, "admin-tokens": token, "shared": shared}
	for _, name := range []string{"cert", "client-ca", "admin-cert", "admin-ca", "redis-ca", "redis-cert", "nats-ca", "nats-cert"} {
		good[name] = cert
	}
	for _, name := range []string{"key", "admin-key", "redis-key", "nats-key"} {
		good[name] = key
	}
	type bad struct{ content, says string }
	const fifo, missing, folder = "\x00fifo", "\x00missing", "\x00folder"
	cases := map[string][]bad{}
	for name := range good {
		cases[name] = []bad{{missing, "no such file"}, {folder, "is a directory"}, {fifo, "it is a FIFO, and nothing was written into it"}}
	}
	for _, name := range []string{"redis", "sentinel", "nats"} {
		cases[name] = append(cases[name], bad{"", "is empty"}, bad{"\r\n", "is empty"})
	}
	for _, name := range []string{"tokens", "admin-tokens"} {
		cases[name] = append(cases[name], bad{"# none\n", "contains no token"}, bad{"ci secret", "line 1: a SHA-256 has 64 hex digits"})
	}
	for _, name := range []string{"client-ca", "admin-ca", "redis-ca", "nats-ca"} {
		cases[name] = append(cases[name], bad{"", "holds no PEM certificate"}, bad{key, "holds no PEM certificate"})
	}
	for _, name := range []string{"cert", "key", "admin-cert", "admin-key", "redis-cert", "redis-key", "nats-cert", "nats-key"} {
		cases[name] = append(cases[name], bad{"", "failed to find any PEM data"})
	}
	for _, name := range []string{"key", "admin-key", "redis-key", "nats-key"} {
		cases[name] = append(cases[name], bad{otherKey, "private key does not match public key"})
	}
	cases["shared"] = append(cases["shared"], bad{"", "openssl rand"}, bad{zero, "a key of zero bytes"}, bad{shared + "\n" + shared, "name the one"})
	good["creds"] = ""
	cases["creds"] = []bad{{missing, "no such file"}, {"", "holds no credentials"}, {"secret", "holds no credentials"}}

	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a serve that begins ends at once
		return cli.Run(ctx, program(), args, &out, &out), out.String()
	}
	for name, all := range cases {
		for _, c := range all {
			t.Run(fmt.Sprintf("%s %.12q", name, c.content), func(t *testing.T) {
				dir := t.TempDir()
				login := "username: u, password_file: DIR/nats"
				if name == "creds" {
					login = "creds_file: DIR/creds"
				}
				topology := filepath.Join(dir, "topology.yaml")
				files := map[string]string{topology: strings.NewReplacer("NATSLOGIN", strings.ReplaceAll(login, "DIR", dir), "DIR", dir).Replace(namesFiles)}
				for name, content := range good {
					files[filepath.Join(dir, name)] = content
				}
				at := filepath.Join(dir, name)
				delete(files, at)
				for file, content := range files {
					if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				var err error
				switch c.content {
				case missing:
				case folder:
					err = os.Mkdir(at, 0o700)
				case fifo:
					err = syscall.Mkfifo(at, 0o600)
				default:
					err = os.WriteFile(at, []byte(c.content), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, args := range [][]string{{"serve", "--config", topology, "--region", "town", "--drain", "0s"}, {"validate", "--region", "town", topology}, {"validate", topology}} {
					want := 2
					if c.content == missing && len(args) == 2 { // it may be another host
						want = 0
					}
					code, said := run(args...)
					if code != want || !strings.Contains(said, at) || want != 0 && !strings.Contains(said, c.says) {
						t.Errorf("%s exits with %d, want %d, %q and %s:\n%s", args[0], code, want, c.says, at, said)
					}
				}
			})
		}
	}
}
