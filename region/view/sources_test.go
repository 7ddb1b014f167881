package view_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/region/view"
	"github.com/regiond/regiond/sync/wire"
)

// The states in which the bus has a process, gossip and the store another word of it.
var (
	busWords    = []string{"never", "silent", "behind", "one way", "joining", "fresh"}
	gossipWords = []members.Word{"", members.Alive, members.Dead}
	storeWords  = []string{"unread", "absent", "alive"}
)

// received is a process of which the bus has this.
func received(p quota.Process, word string, now time.Duration, key uint64) members.Member {
	peer := members.Member{Process: p, Bus: healthy(p.Region, p.Instance, now, "eu-west", "us-east").Bus}
	peer.Key = key
	switch word {
	case "never":
		peer.Bus = members.Bus{}
	case "silent":
		peer.ReceivedAt -= members.SilentAfter + 1
	case "behind":
		peer.Full = true
	case "one way":
		peer.AckedAt -= members.OneWayAfter + 1
	case "joining":
		peer.Synced = false
	}
	return peer
}

// fixedState is a region's store with these siblings.
type fixedState struct{ of state.Snapshot }

func (s *fixedState) Snapshot() *state.Snapshot { return &s.of }
func (*fixedState) See([]string)                {}
func (*fixedState) Settle(*state.Snapshot)      {}

// sources is what a Manager knows of a process, besides healthy ones, from each source.
type sources struct {
	bus    string
	gossip members.Word
	store  string
}

// outcome is what it makes of it in ten seconds.
type outcome struct {
	counted   bool // us-east is counted on
	processes int64
	recovers  bool
}

func observed(t *testing.T, p quota.Process, s sources, healthyToo ...quota.Process) (o outcome) {
	t.Helper()
	now, key := time.Minute, wire.NewKey(nil, "test")
	table, stored := members.New(self), &fixedState{}
	stored.of.Read = s.store != "unread"
	m, ceilings := manage(t, self, &now, withLimit(), view.ManagerOptions{
		Members: table, State: stored, Recover: func() { o.recovers = true },
	}, key)
	for range 200 {
		now += view.RefreshEvery
		known := received(p, s.bus, now, key.Fingerprint())
		known.Gossip.State = s.gossip
		all := []members.Member{known}
		for _, q := range healthyToo {
			all = append(all, received(q, "fresh", now, key.Fingerprint()))
		}
		if s.store == "alive" {
			all[0].Store = members.Store{Alive: true, Sees: []string{"eu-west", "us-east"}, At: now, Entry: "an entry"}
		}
		for i := range all {
			all[i].Store.Read = s.store != "unread" && all[i].Region == self.Region
		}
		put(table, all...)
		m.Refresh()
	}
	o.counted, o.processes = ceilings.View().Members().Len() == 2, m.Processes()
	return o
}

// TestGossipOnlyReduces: whatever gossip says of a process, its region is counted on only if the bus
// has it as healthy. That it is alive makes nobody more trusted, and that it is dead only ends the wait
// for one that is silent, beside others that are healthy.
func TestGossipOnlyReduces(t *testing.T) {
	one, two := quota.Process{Region: "us-east", Instance: "1", Boot: 7}, quota.Process{Region: "us-east", Instance: "2", Boot: 7}
	for _, bus := range busWords {
		for _, word := range gossipWords {
			s := sources{bus, word, "absent"}
			t.Run(fmt.Sprint(s), func(t *testing.T) {
				if got := observed(t, one, s).counted; got != (bus == "fresh") {
					t.Errorf("alone in its region it is counted on: %t", got)
				}
				want := bus == "fresh" || bus == "never" && word != members.Alive || bus == "silent" && word == members.Dead
				if got := observed(t, one, s, two).counted; got != want {
					t.Errorf("beside a healthy process its region is counted on: %t, want %t", got, want)
				}
			})
		}
	}
}

// TestSiblingsAreJudgedByTheStore: once it was read, the store that siblings share says which of them
// are alive, and gossip has no part in that.
func TestSiblingsAreJudgedByTheStore(t *testing.T) {
	sibling := quota.Process{Region: "eu-west", Instance: "two", Boot: 7}
	other := quota.Process{Region: "us-east", Instance: "1", Boot: 7}
	for _, bus := range busWords {
		for _, store := range storeWords {
			for _, word := range gossipWords {
				s := sources{bus, word, store}
				t.Run(fmt.Sprint(s), func(t *testing.T) {
					judge := string(word)
					if store != "unread" {
						judge = map[string]string{"absent": "dead", "alive": "alive"}[store]
					}
					silent := bus == "never" || bus == "silent"
					want := outcome{
						counted:   store != "unread", // joining lasts until it was
						processes: 2,
						recovers:  silent && judge == "alive",
					}
					if silent && judge != "alive" {
						want.processes = 1
					}
					if got := observed(t, sibling, s, other); got != want {
						t.Errorf("%+v, want %+v", got, want)
					}
				})
			}
		}
	}
}
