package global_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/global"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// acquainted is a mesh that hears one other process, and is heard by it.
type acquainted struct {
	lonely
	peer meshsync.Peer
	now  *time.Duration
}

func (m *acquainted) Peers() []meshsync.Peer {
	p := m.peer
	p.ReceivedAt, p.AckedAt, p.Synced = *m.now, *m.now, true
	p.Heartbeats = int(*m.now / view.BeatEvery)
	return []meshsync.Peer{p}
}

// TestAnotherKeyIsNotCountedOn: a process whose ids are made with another key, or that
// does not say with which, says nothing about our partitions. Its region is not counted
// on, and whoever asks why is told what to do.
func TestAnotherKeyIsNotCountedOn(t *testing.T) {
	key := wire.NewKey([]byte("a key of sixteen or more"), "test")
	const all = "eu-west us-east"
	for _, row := range []struct {
		name    string
		members string // that its newest beat names
		key     uint64
		mode    quota.Mode
		says    string
	}{
		{"the same key", all, key.Fingerprint(), quota.ModeGlobal, ""},
		{"a key that is being rotated", all, wire.NewKey([]byte("the one that came before"), "test").Fingerprint(), quota.ModePartitioned, "process one uses another gossip key"},
		{"no key", all, wire.NewKey(nil, "test").Fingerprint(), quota.ModePartitioned, "give all processes the same key_file"},
		{"a version that does not say", all, 0, quota.ModePartitioned, "another gossip key"},
		{"no beat yet", "", 0, quota.ModePartitioned, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			now := time.Minute
			top := &region.Topology{Regions: []region.Region{{Name: "eu-west", Weight: 1}, {Name: "us-east", Weight: 1}}}
			self := quota.Process{Region: "eu-west", Instance: "one", Boot: 1}
			clock := func() time.Duration { return now }
			ceilings, err := global.New(global.Options{
				Self: self, Now: clock, TimeUS: func() int64 { return now.Microseconds() }, Key: key, Topology: top,
			})
			if err != nil {
				t.Fatal(err)
			}
			mesh := &acquainted{now: &now, peer: meshsync.Peer{
				Process: quota.Process{Region: "us-east", Instance: "one", Boot: 1}, Members: strings.Fields(row.members), Key: row.key,
				Topology: view.Hash([]quota.Weight{{Region: "eu-west", Weight: 1}, {Region: "us-east", Weight: 1}}),
			}}
			if row.members == "" {
				mesh.peer.Members = nil
			}
			lookout, err := global.NewLookout(global.LookoutOptions{
				Self: self, Now: clock, Topology: func() *region.Topology { return top }, Ceilings: ceilings, Mesh: mesh,
				Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				now += global.LookEvery
				lookout.Once()
			}
			v := ceilings.View()
			if mode, _ := v.Mode(quota.FailShare); mode != row.mode {
				t.Errorf("mode %v, want %v", mode, row.mode)
			}
			if text := v.Peers()[1].Text; !strings.Contains(text, row.says) || (text != "") != (row.says != "") {
				t.Errorf("it is said of us-east: %q, want %q in it", text, row.says)
			}
			if hash, _ := v.Topology(); hash != mesh.peer.Topology {
				t.Errorf("the key is in the hash of the topology")
			}
		})
	}
}
