package view_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/region/view"
	"github.com/regiond/regiond/sync/wire"
)

// put has a table hold exactly these processes, and what the view remembers of them.
func put(t *members.Table, all ...members.Member) {
	t.Lock()
	defer t.Unlock()
	before := t.All
	t.All = map[quota.Process]*members.Member{}
	for _, m := range all {
		if old := before[m.Process]; old != nil {
			m.View = old.View
		}
		t.All[m.Process] = &m
	}
}

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
	o.Ceilings, o.HeartbeatSoon, o.Logger = ceilings, func() {}, slog.New(slog.DiscardHandler)
	if o.Members == nil {
		o.Members = members.New(self)
	}
	return view.NewManager(o), ceilings
}

// A process whose ids are made with another key, or that does not send which, has
// usage that means nothing here. Its region is treated as unreachable, with a reason that says
// what to do.
func TestAnotherKeyIsNotCountedOn(t *testing.T) {
	key := wire.NewKey([]byte("a key of sixteen or more"), "test")
	all := []string{"eu-west", "us-east"}
	for _, row := range []struct {
		name    string
		regions []string // of its newest heartbeat
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
			table := members.New(self)
			m, ceilings := manage(t, self, &now, withLimit(), view.ManagerOptions{Members: table}, key)
			for range 100 {
				now += view.RefreshEvery
				peer := healthy("us-east", "one", now, row.regions...)
				peer.Key = row.key
				put(table, peer)
				m.Refresh()
			}
			v := ceilings.View()
			if mode, _ := v.Mode(quota.FailShare); mode != row.mode {
				t.Errorf("mode %v, want %v", mode, row.mode)
			}
			if text := v.Peers[1].Text; !strings.Contains(text, row.text) || (text != "") != (row.text != "") {
				t.Errorf("us-east is described as %q, want %q in it", text, row.text)
			}
			if hash := v.Heartbeat.Topology; hash != view.Hash(two) {
				t.Errorf("the key is in the hash of the topology")
			}
		})
	}
}

// How many processes a limit is divided among while the store is unavailable, and when what
// silent ones admit is read from the store.
func TestProcessesOfOurRegion(t *testing.T) {
	const now = time.Hour
	fresh, silent := now-members.SilentAfter, now-members.SilentAfter-1
	of := func(instance string, boot int64) members.Member {
		return members.Member{Process: quota.Process{Region: "eu-west", Instance: instance, Boot: boot}}
	}
	heard := func(p members.Member, at time.Duration) members.Member {
		p.ReceivedAt = at
		return p
	}
	reported := func(p members.Member, word members.Word) members.Member {
		p.Gossip.State = word
		return p
	}
	inStore := func(p members.Member, alive bool) members.Member {
		p.Store = members.Store{Read: true, Alive: alive, Entry: "an entry"}
		return p
	}
	two, left, elsewhere := of("two", 7), reported(of("left", 7), members.Alive), heard(of("two", 7), fresh)
	left.LeftUntil, elsewhere.Region = now, "us-east"
	for _, row := range []struct {
		name     string
		known    []members.Member
		want     int64
		recovers bool
	}{
		{name: "no other", want: 1},
		{name: "one that is heard", known: []members.Member{heard(two, fresh)}, want: 2},
		{name: "one that is silent", known: []members.Member{heard(two, silent)}, want: 1},
		{name: "one that gossip alone knows", known: []members.Member{reported(two, members.Alive)}, want: 2, recovers: true},
		{name: "one that is silent, and alive", known: []members.Member{reported(heard(two, silent), members.Alive)}, want: 2, recovers: true},
		{name: "one that is silent, and dead", known: []members.Member{reported(heard(two, silent), members.Dead)}, want: 1},
		{name: "one that gossip knows, and the store does not", known: []members.Member{inStore(reported(two, members.Alive), false)}, want: 1},
		{name: "one that the store alone knows", known: []members.Member{inStore(reported(two, members.Dead), true)}, want: 2, recovers: true},
		{name: "one that is heard, and the store does not know", known: []members.Member{inStore(heard(two, fresh), false)}, want: 2},
		{name: "another region's", known: []members.Member{elsewhere}, want: 1},
		{name: "one that left, and gossip does not know yet", known: []members.Member{left}, want: 1, recovers: true},
		{
			name:  "one that crashed and is back",
			known: []members.Member{reported(heard(two, fresh), members.Dead), reported(of("two", 8), members.Alive)},
			want:  2, recovers: true,
		},
		{name: "our own former run", known: []members.Member{reported(of("one", 1), members.Alive)}, want: 1, recovers: true},
		{
			name:  "two",
			known: []members.Member{heard(two, fresh), reported(heard(of("three", 7), fresh), members.Alive)},
			want:  3,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			now, recovers := now, false
			table := members.New(self)
			put(table, row.known...)
			o := view.ManagerOptions{Members: table, Recover: func() { recovers = true }}
			m, _ := manage(t, self, &now, withLimit(), o, wire.NewKey(nil, "test"))
			m.Refresh()
			if got := m.Processes(); got != row.want || recovers != row.recovers {
				t.Errorf("%d processes, recovers %v; want %d, %v", got, recovers, row.want, row.recovers)
			}
		})
	}
}

// The count is the largest of the last ten minutes, at least, and of twenty at most: one of
// two processes restarts, and is missing for ten minutes.
func TestProcessesAreRememberedForTenMinutes(t *testing.T) {
	now := time.Duration(0)
	table := members.New(self)
	m, _ := manage(t, self, &now, withLimit(), view.ManagerOptions{Members: table}, wire.NewKey(nil, "test"))
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
		now = row.at
		var all []members.Member
		for i := int64(1); i < row.count; i++ {
			all = append(all, members.Member{
				Process: quota.Process{Region: "eu-west", Instance: string(rune('a' + i)), Boot: 1}, Bus: members.Bus{ReceivedAt: now},
			})
		}
		put(table, all...)
		m.Refresh()
		if got := m.Processes(); got != row.want {
			t.Errorf("at %v: %d processes, want %d", row.at, got, row.want)
		}
	}
}

// fixedState is a region's store, which may not have been read yet.
type fixedState struct {
	of              state.Snapshot
	agreed, settled bool // it was called
}

func (s *fixedState) Snapshot() *state.Snapshot { return &s.of }
func (*fixedState) See([]string)                {}
func (s *fixedState) Settle(*state.Snapshot)    { s.settled = true }
func (s *fixedState) Agree(*state.Snapshot)     { s.agreed = true }

// Joining lasts until the store was read.
func TestJoiningWaitsForTheStore(t *testing.T) {
	now, key := time.Minute, wire.NewKey(nil, "test")
	table, stored := members.New(self), &fixedState{}
	m, ceilings := manage(t, self, &now, withLimit(), view.ManagerOptions{Members: table, State: stored}, key)
	for range 20 * view.JoiningFor / view.RefreshEvery {
		now += view.RefreshEvery
		peer := healthy("us-east", "one", now, "eu-west", "us-east")
		peer.Key = key.Fingerprint()
		put(table, peer)
		stored.of.Read = now > time.Minute+10*view.JoiningFor
		m.Refresh()
		if mode, _ := ceilings.View().Mode(quota.FailShare); (mode == quota.ModeGlobal) != stored.of.Read {
			t.Fatalf("read %t: %v", stored.of.Read, mode)
		}
	}
}
