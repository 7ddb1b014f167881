package view_test

import (
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
)

// Peers hold to their own parts while one process of a region sees less than the
// others. So its siblings must not use the parts of these either: both sides would
// count on the same units. A newcomer counts on nobody yet, and puts nobody out; one
// that we do not hear says nothing.
func TestSiblingsHaveToAgree(t *testing.T) {
	both, alone := []string{"a", "b"}, []string{"a"}
	for _, row := range []struct {
		why     string
		sibling func(now, age time.Duration) view.Process // age is how long it is known
		early   bool                                      // whether we count on b 2 s after it came
		late    bool                                      // and after 10 s
	}{
		{"it agrees", heard(both), true, true},
		{"it counts on nobody", heard(alone), true, false},
		{"it has not spoken", heard(nil), true, false},
		{"it counted on b and does no more", func(now, age time.Duration) view.Process {
			if age < time.Second {
				return heard(both)(now, age)
			}
			return heard(alone)(now, age)
		}, false, false},
		{"it counted on b, and is silent", func(now, age time.Duration) view.Process {
			return heard(both)(now-age+min(age, 100*time.Millisecond), 0)
		}, true, true},
		{"gossip alone knows it", func(time.Duration, time.Duration) view.Process { return view.Process{Gossip: gossip.Alive} }, true, true},
		{"it is silent, and gossip calls it dead", func(now, age time.Duration) view.Process {
			p := heard(alone)(now-age, 0)
			p.Gossip = gossip.Dead
			return p
		}, true, true},
		{"it leaves", func(now, age time.Duration) view.Process {
			p := heard(alone)(now, age)
			p.Leaving = true
			return p
		}, true, true},
	} {
		t.Run(row.why, func(t *testing.T) {
			if early, late := siblings(t, row.sibling); early != row.early || late != row.late {
				t.Errorf("b is counted on after two seconds: %t, after ten: %t; want %t, %t", early, late, row.early, row.late)
			}
		})
	}
}

// heard is a sibling whose newest beat advertises these.
func heard(members []string) func(now, age time.Duration) view.Process {
	return func(now, _ time.Duration) view.Process {
		return view.Process{
			Peer:   meshsync.Peer{ReceivedAt: now, AckedAt: now, Heartbeats: 9, Synced: true, Members: members},
			Gossip: gossip.Alive,
		}
	}
}

// siblings has a sibling appear beside a process of a that is well connected with b.
func siblings(t *testing.T, sibling func(now, age time.Duration) view.Process) (early, late bool) {
	weights := []quota.Weight{{Region: "a", Weight: 1}, {Region: "b", Weight: 1}}
	v, err := view.NewViewer("a", epoch, topologyOf(weights))
	if err != nil {
		t.Fatal(err)
	}
	const comes = 10 * time.Second
	for at := time.Duration(0); at <= comes+10*time.Second; at += 50 * time.Millisecond {
		now := epoch + at
		peer := heard([]string{"a", "b"})(now, at)
		peer.Region, peer.Instance, peer.Topology = "b", "1", view.Hash(weights)
		in := view.Input{Now: now, Processes: []view.Process{peer}}
		if at >= comes {
			p := sibling(now, at-comes)
			p.Region, p.Instance, p.Topology = "a", "2", view.Hash(weights)
			in.Processes = append(in.Processes, p)
		}
		seen, _ := v.Observe(in)
		with := seen.Members().Len() == 2
		switch mode, reason := seen.Mode(quota.FailShare); {
		case at == comes-50*time.Millisecond && !with:
			t.Fatalf("without a sibling: %v, %v", mode, reason)
		case at == comes+2*time.Second:
			early = with
		case !with && at > comes && (reason != quota.ReasonViewsDiffer || !slices.Equal(seen.About(), []string{"a"})):
			t.Errorf("%v on: %v, %v about %v", at-comes, mode, reason, seen.About())
		}
		late = with
	}
	return early, late
}
