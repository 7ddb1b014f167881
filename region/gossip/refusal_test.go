package gossip_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/test/meters"
)

func metered() (*meters.Reader, func(*gossip.Options)) {
	m := meters.New()
	return m, func(o *gossip.Options) { o.Meter = m.Meter }
}

func withKey(b byte) func(*gossip.Options) {
	return func(o *gossip.Options) { o.Keys = [][]byte{bytes.Repeat([]byte{b}, 32)} }
}

// Processes of other deployments never appear, even if they know every address,
// and see no member themselves.
func TestOthersNeverAppear(t *testing.T) {
	for _, row := range []struct {
		reason, region string
		change         func(*gossip.Options)
		blind          bool // the other sees no member either
	}{
		{"label", "r3", func(o *gossip.Options) { o.Cluster = "staging" }, true},
		{"label", "r3", func(o *gossip.Options) { o.Cluster = "" }, true},
		{"key", "r3", withKey(2), true},
		{"key", "r3", func(o *gossip.Options) { o.Keys = nil }, true},
		{"region", "unknown", func(*gossip.Options) {}, false},
	} {
		t.Run(row.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.seeds = []string{address(1), address(2), address(3)}
				reader, meter := metered()
				ps := []*process{
					c.start("r1", "a", address(1), withKey(1), meter),
					c.start("r2", "a", address(2), withKey(1)),
				}
				other := c.start(row.region, "a", address(3), withKey(1), row.change)
				c.await(10*s, func() bool { return whole(ps, 2) })
				for range 120 {
					time.Sleep(s)
					synctest.Wait()
					if !whole(ps, 2) || len(ps[0].Members()) != 2 {
						t.Fatalf("members are %v, want the two", ps[0].Members())
					}
					if row.blind && other.count(members.Alive) != 1 {
						t.Fatalf("the other process sees %v", other.Members())
					}
				}
				if got := reader.Of(t, "regiond.gossip.refused", "reason", row.reason); got == 0 {
					t.Error("no refusal is counted")
				}
				// r1 may have called r2 before r2 listened.
				started := logged(ps[0].log, `retrying every few seconds" seed=`+address(2))
				if got := logged(ps[0].log, "level=WARN") - started; got > 1 || started > 1 {
					t.Errorf("%d warnings in two minutes and %d about r2, want at most one for each seed", got, started)
				}
			})
		})
	}
}
