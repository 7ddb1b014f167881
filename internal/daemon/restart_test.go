package daemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/regiond/regiond/region"
)

// sentinels is a town whose Redis is behind sentinels and certificates, in files of dir.
func sentinels(addr, dir string) string {
	return "cluster: prod\n" + strings.Replace(town, "STORE", fmt.Sprintf(
		"{addrs: [%q], mode: sentinel, master: counters, sentinel_username: watch, sentinel_password_file: %s/watch, tls: {ca_file: %s/ca.pem}}", addr, dir, dir), 1)
}

func TestFieldsThatNeedARestart(t *testing.T) {
	before := sentinels("127.0.0.1:1", "/secrets")
	for _, row := range []struct{ old, changed, want string }{
		{"units: 5,", "units: 6,", ""},
		{"cluster: prod", "cluster: staging", "cluster"},
		{"sentinel_username: watch", "sentinel_username: guard", "regions/town/redis"},
		{"/secrets/watch", "/secrets/guard", "regions/town/redis"},
		{"/secrets/ca.pem", "/secrets/new.pem", "regions/town/redis"},
		{"master: counters", "master: others", "regions/town/redis"},
		{"http: 127.0.0.1:0", "http: 127.0.0.1:1", "regions/town/http"},
	} {
		var tops []*region.Topology
		for _, text := range []string{before, replace(t, before, row.old, row.changed)} {
			top, _, err := region.Parse("topology.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			tops = append(tops, top)
		}
		if got := strings.Join(restartFields(tops[0], tops[1], "town"), ", "); got != row.want {
			t.Errorf("%s: %q, want %q", row.changed, got, row.want)
		}
	}
}

// TestFilesThatNeedARestart: of a file that is read once, the log says that a change
// has not been taken; of none that a reload does take.
func TestFilesThatNeedARestart(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	a := newAuthority(t, "redis")
	write(t, at("watch"), "old")
	write(t, at("ca.pem"), a.pem)
	p := start(t, sentinels(nobody(t), dir))
	const message = "these changes need a restart"
	put(t, at("watch"), "new")
	if line := p.log.await(t, message, 1); line["fields"] != "regions/town/redis/sentinel_password_file" {
		t.Errorf("the log says %v", line)
	}
	put(t, at("ca.pem"), newAuthority(t, "redis, renewed").pem)
	if line := p.log.await(t, message, 2); line["fields"] != "regions/town/redis/sentinel_password_file, regions/town/redis/tls/ca_file" {
		t.Errorf("the log says %v", line)
	}
	put(t, at("watch"), "old") // as the process has it
	put(t, at("ca.pem"), a.pem)
	if fields := p.daemon.restarts.fields(p.daemon.config.Load()); len(fields) > 0 {
		t.Errorf("with the old contents back, %v", fields)
	}
}

// TestReadOnce: all that a region names and that is not read again when it is needed.
func TestReadOnce(t *testing.T) {
	r := &region.Region{
		Gossip: &region.Gossip{KeyFile: "key"},
		Redis:  region.Redis{PasswordFile: "live", SentinelPasswordFile: "watch", TLS: &region.TLS{CAFile: "ca", CertFile: "live", KeyFile: "live"}},
		NATS:   region.NATS{CredsFile: "live", TLS: &region.TLS{CAFile: "ca2", CertFile: "live", KeyFile: "live"}},
	}
	want := []fieldFile{{"redis/sentinel_password_file", "watch"}, {"gossip/key_file", "key"}, {"redis/tls/ca_file", "ca"}, {"nats/tls/ca_file", "ca2"}}
	if got := readOnce(r); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
