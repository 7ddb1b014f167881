package global

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/view"
)

// TestLeavingIsNotMissed: gossip goes on to show a process that has said on the bus that
// it leaves. It is no process that is missed.
func TestLeavingIsNotMissed(t *testing.T) {
	members := []gossip.Member{
		{Region: "eu-west", Instance: "two", Boot: 7, State: gossip.Alive},
		{Region: "eu-west", Instance: "three", Boot: 8, State: gossip.Alive},
	}
	left := func(region, instance string, boot int64) bool { return instance == "two" && boot == 7 }
	missed := unheard(nil, members, left)
	if len(missed) != 2 {
		t.Fatalf("%d of 2 processes that gossip knows: %+v", len(missed), missed)
	}
	for _, p := range missed {
		if p.Leaving != (p.Instance == "two") {
			t.Errorf("%+v", p)
		}
	}
}

// TestCount: among how many a decision without the store is divided.
func TestCount(t *testing.T) {
	const now = time.Hour
	fresh, silent := now-view.SilentAfter, now-view.SilentAfter-1
	for _, c := range []struct {
		name      string
		processes []view.Process
		want      int64
	}{
		{"nobody else", nil, 1},
		{"one that is heard", []view.Process{{Region: "eu-west", Instance: "two", Boot: 7, Heard: fresh}}, 2},
		{"one that is silent", []view.Process{{Region: "eu-west", Instance: "two", Boot: 7, Heard: silent}}, 1},
		{"one that gossip knows", []view.Process{{Region: "eu-west", Instance: "two", Boot: 7, Gossip: view.GossipAlive}}, 2},
		{"one that gossip misses", []view.Process{{Region: "eu-west", Instance: "two", Boot: 7, Gossip: view.GossipDead}}, 1},
		{"another region's", []view.Process{{Region: "us-east", Instance: "two", Boot: 7, Heard: fresh}}, 1},
		{"one that leaves", []view.Process{{Region: "eu-west", Instance: "two", Boot: 7, Gossip: view.GossipAlive, Leaving: true}}, 1},
		{"one that crashed and is back", []view.Process{
			{Region: "eu-west", Instance: "two", Boot: 7, Heard: fresh, Gossip: view.GossipDead},
			{Region: "eu-west", Instance: "two", Boot: 8, Gossip: view.GossipAlive},
		}, 2},
		{"our own former life", []view.Process{{Region: "eu-west", Instance: "one", Boot: 1, Gossip: view.GossipAlive}}, 1},
		{"two", []view.Process{
			{Region: "eu-west", Instance: "two", Boot: 7, Heard: fresh},
			{Region: "eu-west", Instance: "three", Boot: 8, Heard: fresh, Gossip: view.GossipAlive},
		}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &Lookout{o: LookoutOptions{Self: quota.Process{Region: "eu-west", Instance: "one", Boot: 2}}}
			if got := l.count(c.processes, now); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
