package global

import (
	"testing"

	"github.com/regiond/regiond/region/gossip"
)

// TestLeavingIsNotMissed: gossip goes on to show a process that has said on the bus that
// it leaves. It is no process that is missed.
func TestLeavingIsNotMissed(t *testing.T) {
	members := []gossip.Member{
		{Region: "eu-west", Instance: "two", Boot: 7, State: gossip.Alive},
		{Region: "eu-west", Instance: "three", Boot: 8, State: gossip.Alive},
	}
	left := func(region, instance string, boot int64) bool { return instance == "two" && boot == 7 }
	for _, p := range unheard(nil, members, left) {
		if p.Leaving != (p.Instance == "two") {
			t.Errorf("%+v", p)
		}
	}
}
