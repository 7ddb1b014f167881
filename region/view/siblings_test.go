package view_test

import (
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
)

// healthy is a process whose newest heartbeat, at the time heard, names these regions.
func healthy(region, instance string, heard time.Duration, regions ...string) members.Member {
	return members.Member{
		Process: quota.Process{Region: region, Instance: instance}, Gossip: members.Gossip{State: members.Alive},
		Bus: members.Bus{ReceivedAt: heard, AckedAt: heard, Heartbeats: 9, Synced: true, Members: regions, Topology: view.Hash(two)},
	}
}

// stored is a process with an entry in the store that changed at a time; without regions it
// joins.
func stored(p members.Member, at time.Duration, sees ...string) members.Member {
	p.Store = members.Store{Read: true, Alive: true, At: at, Sees: sees}
	return p
}

// history is what a view remembered of each process, as a table of processes keeps it.
type history map[quota.Process]members.View

// observe is Observe of processes that the view has seen before.
func (h history) observe(v *view.Viewer, in view.Input) (*view.View, []view.Event) {
	for i := range in.Processes {
		p := &in.Processes[i]
		key := p.View.OtherKey // not the Viewer's to find
		p.View = h[p.Process]
		p.View.OtherKey = key
	}
	defer func() {
		for i := range in.Processes {
			h[in.Processes[i].Process] = in.Processes[i].View
		}
	}()
	return v.Observe(in)
}

// Peers hold to their own shares while one process of a region sees less than the
// others. So its siblings must not use the peers' shares either, or both sides would
// count on the same units. A newcomer counts on no region yet, and excludes none; of a
// silent sibling its entry in the store counts, if it has one.
func TestSiblingsHaveToAgree(t *testing.T) {
	both, alone := []string{"eu-west", "us-east"}, []string{"eu-west"}
	for _, row := range []struct {
		why string
		// sibling is what is known of it, age after it appeared.
		sibling func(now, age time.Duration) members.Member
		early   bool // whether we count on us-east 2 s after it appeared
		late    bool // and after 10 s
	}{
		{"it agrees", func(now, _ time.Duration) members.Member { return healthy("eu-west", "2", now, both...) }, true, true},
		{"it counts on no other region", func(now, _ time.Duration) members.Member { return healthy("eu-west", "2", now, alone...) }, true, false},
		{"it has sent no heartbeat", func(now, _ time.Duration) members.Member { return healthy("eu-west", "2", now) }, true, false},
		{"it counted on us-east and does no more", func(now, age time.Duration) members.Member {
			if age < time.Second {
				return healthy("eu-west", "2", now, both...)
			}
			return healthy("eu-west", "2", now, alone...)
		}, false, false},
		{"it counted on us-east, and is silent", func(now, age time.Duration) members.Member {
			return healthy("eu-west", "2", now-age+min(age, 100*time.Millisecond), both...)
		}, true, true},
		{"it is silent, and its entry in the store says the same regions", func(now, age time.Duration) members.Member {
			return stored(healthy("eu-west", "2", now-age, both...), now, both...)
		}, true, true},
		{"it is silent, and its entry says fewer", func(now, age time.Duration) members.Member {
			return stored(healthy("eu-west", "2", now-age, both...), now, alone...)
		}, false, false},
		{"it is silent, and so is its entry", func(now, age time.Duration) members.Member {
			return stored(healthy("eu-west", "2", now-age, both...), now-age, both...)
		}, false, false},
		{"it joins, by its entry", func(now, _ time.Duration) members.Member { return stored(healthy("eu-west", "2", 0), now) }, true, true},
		{"the bus never knew it, and its entry says fewer", func(now, _ time.Duration) members.Member {
			return stored(healthy("eu-west", "2", 0), now, alone...)
		}, false, false},
		{"it is received, and its entry is old", func(now, age time.Duration) members.Member {
			return stored(healthy("eu-west", "2", now, both...), now-age, alone...)
		}, true, true},
		{"gossip alone knows it", func(time.Duration, time.Duration) members.Member { return healthy("eu-west", "2", 0) }, true, true},
		{"it is silent, and gossip reports it dead", func(now, age time.Duration) members.Member {
			p := healthy("eu-west", "2", now-age, alone...)
			p.Gossip.State = members.Dead
			return p
		}, true, true},
		{"it leaves", func(now, _ time.Duration) members.Member {
			p := healthy("eu-west", "2", now, alone...)
			p.LeftUntil = 1
			return p
		}, true, true},
	} {
		t.Run(row.why, func(t *testing.T) {
			v := view.NewViewer("eu-west", epoch, topologyOf(two))
			past := history{}
			const appears = 10 * time.Second
			var early, late bool
			for at := time.Duration(0); at <= appears+10*time.Second; at += 50 * time.Millisecond {
				now := epoch + at
				in := view.Input{Now: now, Processes: []members.Member{healthy("us-east", "1", now, both...)}}
				if at >= appears {
					in.Processes = append(in.Processes, row.sibling(now, at-appears))
				}
				seen, _ := past.observe(v, in)
				late = seen.Members.Len() == 2
				switch mode, reason := seen.Mode(quota.FailShare); {
				case at == appears-50*time.Millisecond && !late:
					t.Fatalf("without a sibling: %v, %v", mode, reason)
				case at == appears+2*time.Second:
					early = late
				case !late && at > appears && (reason != quota.ReasonViewsDiffer || !slices.Equal(seen.About, alone)):
					t.Errorf("%v later: %v, %v about %v", at-appears, mode, reason, seen.About)
				}
			}
			if early != row.early || late != row.late {
				t.Errorf("us-east is counted on after two seconds: %t, after ten: %t; want %t, %t", early, late, row.early, row.late)
			}
		})
	}
}

// A process that was silent while gossip reported it dead, and is received again, is the same
// run: it goes on with what it counts on, and its region is not evaluated without it. Only a
// run that is met for the first time is a newcomer.
func TestAProcessThatReturnsIsNoNewcomer(t *testing.T) {
	both, alone := []string{"eu-west", "us-east"}, []string{"us-east"}
	const away, back = 10 * time.Second, 12 * time.Second
	for _, row := range []struct {
		why    string
		boot   int64 // of the run that is received from back on
		counts bool  // whether we count on us-east from then on
	}{
		{"the same run", 0, false},
		{"another run", 1, true},
	} {
		t.Run(row.why, func(t *testing.T) {
			v := view.NewViewer("eu-west", epoch, topologyOf(two))
			past := history{}
			for at := time.Duration(0); at <= back+time.Second; at += 50 * time.Millisecond {
				now := epoch + at
				second := healthy("us-east", "2", now, both...)
				switch {
				case at >= back:
					second = healthy("us-east", "2", now, alone...)
					second.Boot, second.Synced = row.boot, false
				case at >= away:
					second = healthy("us-east", "2", 0)
					second.Gossip.State = members.Dead
				}
				seen, _ := past.observe(v, view.Input{Now: now, Processes: []members.Member{healthy("us-east", "1", now, both...), second}})
				if counts := seen.Members.Len() == 2; counts != (at < back || row.counts) {
					t.Fatalf("%v after its return: us-east is counted on: %t", at-back, counts)
				}
			}
		})
	}
}

// A process that has not read its own region's store joins for as long, and says what it waits for.
func TestJoiningWithoutTheStore(t *testing.T) {
	v, seen := view.NewViewer("eu-west", 0, topologyOf(two)), history{}
	var got *view.View
	for now := epoch; now < epoch+10*time.Second; now += 100 * time.Millisecond {
		got, _ = seen.observe(v, view.Input{Now: now, Unread: true, Processes: []members.Member{healthy("us-east", "1", now, "eu-west", "us-east")}})
	}
	if mode, reason := got.Mode(quota.FailShare); mode != quota.ModeJoining || reason != quota.ReasonJoining {
		t.Errorf("it is %v because of %q", mode, reason)
	}
	const want = "starting; waiting for this region's Redis"
	if e := got.Explain(100, quota.FailShare, []int64{0, 12}, nil, 0); len(e.Peers) != 1 || e.Peers[0].Counted || e.Peers[0].Reason != want {
		t.Errorf("of the other region it says %+v, want %q", e.Peers, want)
	}
}
