package members_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
)

const now = time.Hour

// fresh is a process that the bus has as healthy, changed.
func fresh(change func(m *members.Member)) members.Member {
	m := members.Member{Bus: members.Bus{ReceivedAt: now, AckedAt: now, Heartbeats: 9, Synced: true}}
	change(&m)
	return m
}

// The rows of Judge's table, each with its boundaries, for each word of the others.
func TestJudge(t *testing.T) {
	const live, not = true, false
	type health struct {
		state members.State
		live  bool
	}
	same := func(s members.State) [3]health { return [3]health{{s, live}, {s, live}, {s, live}} }
	for _, row := range []struct {
		bus    string
		change func(m *members.Member)
		want   [3]health // nothing, alive, dead
	}{
		{
			"it has left", func(m *members.Member) { m.LeftUntil = now + 1 },
			[3]health{{members.StateLeft, not}, {members.StateLeft, not}, {members.StateLeft, not}},
		},
		{
			"nothing was received", func(m *members.Member) { m.Bus = members.Bus{} },
			[3]health{{members.StateSilent, not}, {members.StateSilent, live}, {members.StateDead, not}},
		},
		{
			"silent", func(m *members.Member) { m.ReceivedAt = now - members.SilentAfter - 1 },
			[3]health{{members.StateSilent, live}, {members.StateSilent, live}, {members.StateDead, not}},
		},
		{"not silent yet", func(m *members.Member) { m.ReceivedAt = now - members.SilentAfter }, same(members.StateFresh)},
		{"another key", func(m *members.Member) { m.View.OtherKey = true }, same(members.StateBehind)},
		{"a topology that cannot be read", func(m *members.Member) { m.View.Unreadable = true }, same(members.StateBehind)},
		{"no room", func(m *members.Member) { m.Full = true }, same(members.StateBehind)},
		{"unsent", func(m *members.Member) { m.Unsent = members.BehindAfter + 1 }, same(members.StateBehind)},
		{"hardly unsent", func(m *members.Member) { m.Unsent = members.BehindAfter }, same(members.StateFresh)},
		{"missing", func(m *members.Member) { m.MissingSince = now - members.SilentAfter - 1 }, same(members.StateBehind)},
		{"missing for a moment", func(m *members.Member) { m.MissingSince = now - members.SilentAfter }, same(members.StateFresh)},
		{"behind, and one way", func(m *members.Member) { m.Full, m.AckedAt = true, 1 }, same(members.StateBehind)},
		{"an old acknowledgement", func(m *members.Member) { m.AckedAt = now - members.OneWayAfter - 1 }, same(members.StateOneWay)},
		{"not too old yet", func(m *members.Member) { m.AckedAt = now - members.OneWayAfter }, same(members.StateFresh)},
		{"none in three heartbeats", func(m *members.Member) { m.AckedAt, m.Heartbeats = 0, 3 }, same(members.StateOneWay)},
		{"none in two", func(m *members.Member) { m.AckedAt, m.Heartbeats = 0, 2 }, same(members.StateJoining)},
		{"no snapshot", func(m *members.Member) { m.Synced = false }, same(members.StateJoining)},
		{"healthy", func(*members.Member) {}, same(members.StateFresh)},
	} {
		for i, word := range []members.Word{"", members.Alive, members.Dead} {
			m := fresh(row.change)
			m.Gossip.State = word
			got := members.Judge(now, &m)
			if got.State != row.want[i].state || got.Live != row.want[i].live {
				t.Errorf("%s, and others say %q: %v, live %t; want %+v", row.bus, word, got.State, got.Live, row.want[i])
			}
			if got.Good != (got.State <= members.StateJoining && m.AckedAt != 0) || got.Current && got.State > members.StateOneWay {
				t.Errorf("%s, and others say %q: %+v", row.bus, word, got)
			}
			// What the store says of a sibling is in place of that.
			for _, alive := range []bool{true, false} {
				s := m
				s.Store, s.Gossip.State = members.Store{Read: true, Alive: alive}, word
				want := row.want[2]
				if alive {
					want = row.want[1]
				}
				if got := members.Judge(now, &s); got.State != want.state || got.Live != want.live {
					t.Errorf("%s, alive in the store: %t, gossip says %q: %v, live %t", row.bus, alive, word, got.State, got.Live)
				}
			}
		}
	}
}

// A process is in the table while any source knows it, and once.
func TestTable(t *testing.T) {
	self := quota.Process{Region: "a", Instance: "1", Boot: 5}
	one, again := quota.Process{Region: "b", Instance: "1", Boot: 5}, quota.Process{Region: "b", Instance: "1", Boot: 6}
	table := members.New(self)
	others := func(want ...quota.Process) {
		t.Helper()
		got := table.Others()
		if len(got) != len(want) {
			t.Fatalf("%+v, want %v", got, want)
		}
		for i := range got {
			if got[i].Process != want[i] {
				t.Errorf("%+v, want %v", got, want)
			}
		}
	}
	set := func(p quota.Process, change func(m *members.Member)) {
		table.Lock()
		defer table.Unlock()
		m := table.Entry(p)
		change(m)
		table.Prune(m)
	}
	gossip := func(word members.Word) func(*members.Member) {
		return func(m *members.Member) { m.Gossip.State = word }
	}
	received := func(at time.Duration) func(*members.Member) {
		return func(m *members.Member) { m.ReceivedAt = at }
	}
	set(self, gossip(members.Alive))
	others()
	set(again, gossip(members.Alive))
	set(one, gossip(members.Dead))
	others(one, again)
	set(again, received(1))
	set(again, gossip(""))
	others(one, again)
	set(one, gossip(""))
	others(again)
	set(again, received(0))
	others()
	if len(table.All) != 1 {
		t.Errorf("%d entries, want our own", len(table.All))
	}
	former := quota.Process{Region: "a", Instance: "1", Boot: 4}
	set(former, func(m *members.Member) { m.Store = members.Store{Entry: "an entry", Alive: true} })
	others() // our own former run
	sibling := quota.Process{Region: "a", Instance: "2", Boot: 4}
	set(sibling, func(m *members.Member) { m.Store = members.Store{Entry: "an entry"} })
	others() // an entry alone is no life
	set(sibling, func(m *members.Member) { m.Store.Alive = true })
	others(sibling)
}
