package global_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/global"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// lonely is a mesh that hears nobody and counts how often it is distrusted.
type lonely struct {
	changed   chan struct{}
	distrusts int
}

func (m *lonely) Peers() []meshsync.Peer            { return nil }
func (m *lonely) Changed() <-chan struct{}          { return m.changed }
func (m *lonely) Left(string, string, int64) bool   { return false }
func (m *lonely) Forget(string, string, int64) bool { return false }
func (m *lonely) Resync()                         { m.distrusts++ }
func (m *lonely) HeartbeatSoon()                             {}

// TestStandstillIsDistrusted: a process that finds that it stood still takes nothing
// that it holds for complete, and one that only looks a little late does.
func TestStandstillIsDistrusted(t *testing.T) {
	now := time.Minute
	top := &region.Topology{Regions: []region.Region{{Name: "eu-west", Weight: 1}, {Name: "us-east", Weight: 1}}}
	self := quota.Process{Region: "eu-west", Instance: "one", Boot: 1}
	clock := func() time.Duration { return now }
	ceilings, err := global.New(global.Options{
		Self: self, Now: clock, TimeUS: func() int64 { return now.Microseconds() }, Key: wire.NewKey(nil, "test"), Topology: top,
	})
	if err != nil {
		t.Fatal(err)
	}
	mesh, frozen := &lonely{}, 0
	lookout, err := global.NewLookout(global.LookoutOptions{
		Self: self, Now: clock, Topology: func() *region.Topology { return top }, Ceilings: ceilings, Mesh: mesh,
		Told: func(e view.Event) {
			if e.Kind == view.Frozen {
				frozen++
			}
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		now += view.FrozenAfter / 2
		lookout.Once()
	}
	if mesh.distrusts != 0 || frozen != 0 {
		t.Fatalf("looks that are a little late: %d distrusts and %d events, want none", mesh.distrusts, frozen)
	}
	now += 3 * view.FrozenAfter
	lookout.Once()
	if mesh.distrusts != 1 || frozen != 1 {
		t.Errorf("after a standstill: %d distrusts and %d events, want one of each", mesh.distrusts, frozen)
	}
}
