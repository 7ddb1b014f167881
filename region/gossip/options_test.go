package gossip_test

import (
	"strings"
	"testing"

	"github.com/regiond/regiond/region/gossip"
)

func TestOptionsThatAreWrong(t *testing.T) {
	for _, row := range []struct {
		want   string
		change func(*gossip.Options)
	}{
		{"option Instance must have 1 to 128 characters", func(o *gossip.Options) { o.Members.Self.Instance = "a b" }},
		{"Keys: key size must be 16, 24 or 32 bytes", func(o *gossip.Options) { o.Keys = [][]byte{[]byte("short")} }},
		{"option Bind: must be host:port", func(o *gossip.Options) { o.Bind = "127.0.0.1" }},
		{"gossip on 10.0.0.1:7946 needs a key", func(o *gossip.Options) { o.Bind, o.Keys = "10.0.0.1:7946", nil }},
		{"gossip on :7946 needs a key", func(o *gossip.Options) { o.Bind, o.Advertise, o.Keys = ":7946", "127.0.0.1:7946", nil }},
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
