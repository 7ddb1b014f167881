package daemon

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// TestWorldReportsAreNoExcess: a region whose reports go far beyond the limit counts with the
// others as one that used it up, and raises no alarm with any of them.
func TestWorldReportsAreNoExcess(t *testing.T) {
	t.Parallel()
	const limit = 900
	inWorld(t, worldOf(limit, 10*time.Minute, ""), func(w *world) {
		w.startAll()
		for range 5 {
			if _, err := w.regions[0].one().limiter.Report(t.Context(), quota.Request{Tenant: "acme", Cost: limit - 1}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		for _, s := range w.regions[1:] {
			p := s.one()
			if n := p.estimate(w.regions[0]); n != limit {
				t.Errorf("%s counts %d units, want %d", s.name, n, limit)
			}
			if n := p.sum("regiond_peer_excess_units_total"); n != 0 {
				t.Errorf("%s finds %v units too many", s.name, n)
			}
		}
	})
}

// TestLongWorldHostilePeer: a process with the right key claims a million times the limit under
// another region's name, in many generations. It denies the tenant to the others for a window,
// as a region that used its limit does, and no longer.
func TestLongWorldHostilePeer(t *testing.T) {
	t.Parallel()
	const limit, window = 900, 10 * time.Minute
	inWorld(t, worldOf(limit, window, ""), func(w *world) {
		w.startAll()
		eu, ap := w.regions[0], w.regions[2]
		eu.one().ask(100)
		time.Sleep(2 * time.Second)
		ap.one().kill() // the hostile process has its place
		hostile := w.bus.Join(ap.name)
		secret, err := wire.NewSecret([][]byte{bytes.Repeat([]byte{1}, 32)}, eu.one().replication.topology().Cluster)
		if err != nil {
			t.Fatal(err)
		}
		// What us-east counts of eu-west names the partition.
		c := w.regions[1].one().replication.ceilings.Ledger()
		var group wire.Group
		for groups := range c.Live(eu.name, 0, 1) {
			group = groups[0]
		}
		if len(group.IDs) != 1 {
			t.Fatal("the partition is not known")
		}
		self := quota.Process{Region: ap.name, Instance: "hostile", Boot: time.Now().UnixMicro()}
		for i := range 50 {
			now := ap.nowUS()
			g := group
			g.Bucket = now / g.WindowUS
			g.Generations, g.Units = []int64{now - int64(i)*2_000_000}, []int64{limit * 1_000_000}
			m := secret.Sign(meshsync.SubjectUsage+ap.name, wire.AppendUsage(nil, &wire.Usage{From: self, Seq: uint64(i + 1), Number: uint64(i + 1), TimeUS: now, Groups: []wire.Group{g}}))
			if err := hostile.Publish(meshsync.SubjectUsage+ap.name, m); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		p := eu.one()
		if n := p.estimate(ap); n != limit {
			t.Errorf("%d units of the hostile process count, want %d", n, limit)
		}
		if n := p.sum("regiond_peer_excess_units_total"); n < 49*limit*1_000_000 {
			t.Errorf("%v units are reported as excess", n)
		}
		if n := w.regions[1].one().sum("regiond_global_usage_units"); n > 100+limit {
			t.Errorf("%v units are shown as used", n)
		}
		if n := strings.Count(p.log.String(), "claims to have used more than it may admit"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
		time.Sleep(3 * window / 2) // of two buckets the older fades
		if n := p.estimate(ap); n > limit/2+limit/10 {
			t.Errorf("a window and a half later %d units count", n)
		}
		time.Sleep(window / 2)
		if n := p.estimate(ap); n != 0 {
			t.Errorf("two windows later %d units count", n)
		}
	})
}
