package gossip_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regiond/regiond/region/gossip"
)

func TestOptionsThatAreWrong(t *testing.T) {
	for _, row := range []struct {
		want   string
		change func(*gossip.Options)
	}{
		{"option Region:", func(o *gossip.Options) { o.Region = "EU/west" }},
		{"option Instance must have 1 to 128 characters", func(o *gossip.Options) { o.Instance = "a b" }},
		{"option Boot must be µs since the epoch, is 0", func(o *gossip.Options) { o.Boot = 0 }},
		{"option Key must be 16, 24 or 32 bytes long, has 5", func(o *gossip.Options) { o.Key = []byte("short") }},
		{"Seeds and Regions are required", func(o *gossip.Options) { o.Seeds = nil }},
		{"option Bind: must be host:port", func(o *gossip.Options) { o.Bind = "127.0.0.1" }},
		{"option Advertise must name a host", func(o *gossip.Options) { o.Bind = "0.0.0.0:0" }},
		{"option Advertise must name a host", func(o *gossip.Options) { o.Advertise = "[::]:7946" }},
		{"option Advertise: must be host:port", func(o *gossip.Options) { o.Advertise = "eu.example.net" }},
	} {
		o := loopback("r1", "127.0.0.1:0")
		row.change(&o)
		if _, err := gossip.New(o); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("got %v, want %q", err, row.want)
		}
	}
}

func TestReadKey(t *testing.T) {
	line := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, row := range []struct {
		name, content string
		bytes         int // 0: refused
	}{
		{"32 bytes", line(32) + "\n", 32},
		{"24 bytes", line(24), 24},
		{"16 bytes", " " + line(16) + "\r\n", 16},
		{"15 bytes", line(15), 0},
		{"empty", "\n", 0},
		{"two lines", line(32) + "\n" + line(32) + "\n", 0},
		{"not base64", strings.Repeat("g!", 32), 0},
	} {
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(row.content), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := gossip.ReadKey(file)
		if len(key) != row.bytes || (err == nil) != (row.bytes > 0) {
			t.Errorf("%s: %d bytes, %v", row.name, len(key), err)
		}
		if err != nil && !strings.Contains(err.Error(), "openssl rand -base64 32") {
			t.Errorf("%s: %v does not say how to make a key", row.name, err)
		}
	}
	if _, err := gossip.ReadKey(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there")
	}
}
