package view_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// stubMesh is a mesh with these peers, of which one may have announced that it stops.
type stubMesh struct {
	peers     []meshsync.Peer
	left      string // its instance
	forgotten []string
}

func (m *stubMesh) Peers() []meshsync.Peer    { return m.peers }
func (m *stubMesh) Changed() <-chan struct{}  { return nil }
func (m *stubMesh) Left(p quota.Process) bool { return p.Instance == m.left }
func (m *stubMesh) Forget(p quota.Process) bool {
	m.forgotten = append(m.forgotten, p.Instance)
	return true
}
func (m *stubMesh) HeartbeatSoon() {}

var self = quota.Process{Region: "eu-west", Instance: "one", Boot: 2}

// manage makes a Manager and its Ceilings, at *now.
func manage(t *testing.T, self quota.Process, now *time.Duration, top *region.Topology, o view.ManagerOptions, key wire.Key) (*view.Manager, *view.Ceilings) {
	t.Helper()
	ceilings, err := view.NewCeilings(view.CeilingOptions{
		Self: self, Now: func() time.Duration { return *now },
		TimeUS: func() int64 { return storeUS + now.Microseconds() }, Key: key, Topology: top,
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Ceilings, o.Logger = ceilings, slog.New(slog.DiscardHandler)
	m, err := view.NewManager(o)
	if err != nil {
		t.Fatal(err)
	}
	return m, ceilings
}

// A process whose ids are made with another key, or that does not send which, has
// usage that means nothing here. Its region is not counted on, with a reason that says
// what to do.
func TestAnotherKeyIsNotCountedOn(t *testing.T) {
	key := wire.NewKey([]byte("a key of sixteen or more"), "test")
	all := []string{"eu-west", "us-east"}
	for _, row := range []struct {
		name    string
		members []string // of its newest heartbeat
		key     uint64
		mode    quota.Mode
		text    string
	}{
		{"the same key", all, key.Fingerprint(), quota.ModeGlobal, ""},
		{"another key of partitions", all, wire.NewKey([]byte("the one that came before"), "test").Fingerprint(), quota.ModePartitioned, "process one has another key of partitions"},
		{"no key", all, wire.NewKey(nil, "test").Fingerprint(), quota.ModePartitioned, "give all processes the same one in key_file"},
		{"a version that does not send it", all, 0, quota.ModePartitioned, "another key of partitions"},
		{"no heartbeat yet", nil, 0, quota.ModePartitioned, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			now := time.Minute
			mesh := &stubMesh{}
			m, ceilings := manage(t, self, &now, withLimit(), view.ManagerOptions{Mesh: mesh}, key)
			for range 100 {
				now += view.RefreshEvery
				peer := healthy("us-east", "one", now, row.members...)
				peer.Key = row.key
				mesh.peers = []meshsync.Peer{peer.Peer}
				m.Refresh()
			}
			v := ceilings.View()
			if mode, _ := v.Mode(quota.FailShare); mode != row.mode {
				t.Errorf("mode %v, want %v", mode, row.mode)
			}
			if text := v.Peers()[1].Text; !strings.Contains(text, row.text) || (text != "") != (row.text != "") {
				t.Errorf("us-east is described as %q, want %q in it", text, row.text)
			}
			if hash, _ := v.Topology(); hash != view.Hash(two) {
				t.Errorf("the key is in the hash of the topology")
			}
		})
	}
}

// A process that was paused reports it; one whose refreshes only come a little late does not.
func TestAPauseIsReported(t *testing.T) {
	now := time.Minute
	mesh, pauses := &stubMesh{}, 0
	m, _ := manage(t, self, &now, withLimit(), view.ManagerOptions{Mesh: mesh, OnEvent: func(e view.Event) {
		if e.Kind == view.ProcessPaused {
			pauses++
		}
	}}, wire.NewKey(nil, "test"))
	for range 10 {
		now += view.PausedAfter / 2
		m.Refresh()
	}
	if pauses != 0 {
		t.Fatalf("refreshes a little late: %d events, want none", pauses)
	}
	now += 3 * view.PausedAfter
	m.Refresh()
	if pauses != 1 {
		t.Errorf("after a pause: %d events, want one", pauses)
	}
}

// How many processes a limit is divided among while the store is unavailable, and what
// happens to silent ones.
func TestProcessesOfOurRegion(t *testing.T) {
	const now = time.Hour
	fresh, silent := now-meshsync.SilentAfter, now-meshsync.SilentAfter-1
	heard := func(instance string, at time.Duration) meshsync.Peer {
		return meshsync.Peer{Process: quota.Process{Region: "eu-west", Instance: instance, Boot: 7}, ReceivedAt: at}
	}
	member := func(instance string, boot int64, s gossip.State) gossip.Member {
		return gossip.Member{Process: quota.Process{Region: "eu-west", Instance: instance, Boot: boot}, State: s}
	}
	elsewhere := heard("two", fresh)
	elsewhere.Region = "us-east"
	for _, row := range []struct {
		name      string
		peers     []meshsync.Peer
		members   []gossip.Member
		want      int64
		forgotten []string
		recovers  bool
	}{
		{name: "no other", want: 1},
		{name: "one that is heard", peers: []meshsync.Peer{heard("two", fresh)}, want: 2},
		{name: "one that is silent", peers: []meshsync.Peer{heard("two", silent)}, want: 1},
		{name: "one that gossip alone knows", members: []gossip.Member{member("two", 7, gossip.Alive)}, want: 2, recovers: true},
		{
			name:  "one that is silent, and alive",
			peers: []meshsync.Peer{heard("two", silent)}, members: []gossip.Member{member("two", 7, gossip.Alive)}, want: 2, recovers: true,
		},
		{
			name:  "one that is silent, and dead",
			peers: []meshsync.Peer{heard("two", silent)}, members: []gossip.Member{member("two", 7, gossip.Dead)}, want: 1,
			forgotten: []string{"two"},
		},
		{name: "another region's", peers: []meshsync.Peer{elsewhere}, want: 1},
		{name: "one that left, and gossip does not know yet", members: []gossip.Member{member("left", 7, gossip.Alive)}, want: 1, recovers: true},
		{
			name:  "one that crashed and is back",
			peers: []meshsync.Peer{heard("two", fresh)}, members: []gossip.Member{member("two", 7, gossip.Dead), member("two", 8, gossip.Alive)},
			want: 2, recovers: true,
		},
		{name: "our own former run", members: []gossip.Member{member("one", 1, gossip.Alive)}, want: 1, recovers: true},
		{
			name:  "two",
			peers: []meshsync.Peer{heard("two", fresh), heard("three", fresh)}, members: []gossip.Member{member("three", 7, gossip.Alive)},
			want: 3,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			now, recovers := now, false
			mesh := &stubMesh{peers: row.peers, left: "left"}
			m, _ := manage(t, self, &now, withLimit(), view.ManagerOptions{
				Mesh: mesh, Members: func() []gossip.Member { return row.members }, Recover: func() { recovers = true },
			}, wire.NewKey(nil, "test"))
			m.Refresh()
			if got := m.Processes(); got != row.want || recovers != row.recovers || !slices.Equal(mesh.forgotten, row.forgotten) {
				t.Errorf("%d processes, recovers %v, forgotten %v; want %d, %v, %v", got, recovers, mesh.forgotten, row.want, row.recovers, row.forgotten)
			}
		})
	}
}

// The count is the largest of the last ten minutes, at least, and of twenty at most: one of
// two processes restarts, and is missing for ten minutes.
func TestProcessesAreRememberedForTenMinutes(t *testing.T) {
	now := time.Duration(0)
	mesh := &stubMesh{}
	m, _ := manage(t, self, &now, withLimit(), view.ManagerOptions{Mesh: mesh}, wire.NewKey(nil, "test"))
	for _, row := range []struct {
		at          time.Duration
		count, want int64
	}{
		{1 * time.Minute, 2, 2},
		{2 * time.Minute, 1, 2},
		{11 * time.Minute, 1, 2},
		{22 * time.Minute, 1, 1},
		{23 * time.Minute, 3, 3},
		{31 * time.Minute, 2, 3},
		{33 * time.Minute, 1, 3},
		{43 * time.Minute, 1, 3},
		{44 * time.Minute, 1, 1},
	} {
		now, mesh.peers = row.at, nil
		for i := int64(1); i < row.count; i++ {
			mesh.peers = append(mesh.peers, meshsync.Peer{
				Process: quota.Process{Region: "eu-west", Instance: string(rune('a' + i)), Boot: 1}, ReceivedAt: now,
			})
		}
		m.Refresh()
		if got := m.Processes(); got != row.want {
			t.Errorf("at %v: %d processes, want %d", row.at, got, row.want)
		}
	}
}
