package view_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
)

var regionNames = []string{"a", "b", "c", "d", "e"}

// within reports whether n advertised members at any time since.
func (n *node) within(members string, since time.Duration) bool {
	for i, a := range n.advertised {
		ended := i+1 < len(n.advertised) && n.advertised[i+1].at < since
		if a.members == members && !ended {
			return true
		}
	}
	return false
}

// drawWorld starts all regions, with links of 10 to 150 ms.
func drawWorld(t *rapid.T) *world {
	var weights []quota.Weight
	for _, name := range regionNames[:rapid.IntRange(2, 5).Draw(t, "regions")] {
		weights = append(weights, quota.Weight{Region: name, Weight: rapid.Int64Range(1, 3).Draw(t, "weight")})
	}
	w := newWorld(weights)
	for _, from := range weights {
		for _, to := range weights {
			w.delays[from.Region+">"+to.Region] = time.Duration(rapid.IntRange(1, 15).Draw(t, "delay")) * tick
		}
	}
	for _, of := range weights {
		w.start(of.Region)
	}
	w.run(3 * time.Second)
	return w
}

// change cuts or heals a few links, or adds or ends a process.
func change(t *rapid.T, w *world) {
	from, to := rapid.SampledFrom(w.weights).Draw(t, "from").Region, rapid.SampledFrom(w.weights).Draw(t, "to").Region
	switch rapid.IntRange(0, 8).Draw(t, "change") {
	case 0:
		clear(w.cut)
	case 1:
		w.cut[from+">"+to] = false
	case 2:
		w.cut[from+">"+to], w.cut[to+">"+from] = from != to, from != to
	case 3:
		if w.find(from+"/2") == nil {
			w.start(from + "/2")
		}
	case 4:
		if n := w.find(from + "/2"); n != nil && n.up {
			w.stop(n, rapid.Bool().Draw(t, "planned"))
		}
	case 5:
		w.find(from).paused = w.now + time.Duration(rapid.IntRange(5, 30).Draw(t, "paused"))*100*time.Millisecond
	default:
		w.cut[from+">"+to] = from != to
	}
}

const (
	notice = 50*time.Millisecond + 2*tick // until the next Observe
	lately = members.SilentAfter + 150*time.Millisecond + notice
)

// agreed checks that no process uses a group that the group's other members have not
// advertised, as a whole and lately: within the silence after which they would not
// count, a link, and an Observe. So two groups that overlap and differ exist no longer
// than that.
func agreed(t *rapid.T, w *world) {
	for _, n := range w.nodes {
		if !n.up || w.now < n.paused {
			continue
		}
		members := membersOf(n.view.At(w.now))
		for _, other := range w.nodes {
			if other.Region == n.Region || !slices.Contains(members, other.Region) || !other.up {
				continue
			}
			if want := strings.Join(members, ","); !other.within(want, w.now-lately) && !leftOut(w, n, other, want) {
				t.Fatalf("at %v %s uses %s, and %s has not advertised it since %v: %+v", w.now-epoch, n.name(), want,
					other.name(), w.now-lately-epoch, other.advertised)
			}
		}
	}
}

// leftOut reports whether n need not agree with other yet: they are new to each other,
// or n was paused when other appeared, and a sibling of other has advertised members.
func leftOut(w *world, n, other *node, members string) bool {
	since := w.now - lately
	if w.now-max(n.began, n.paused, other.began) > view.NewcomerFor+notice || !other.within(other.Region, since) {
		return false
	}
	return slices.ContainsFunc(w.nodes, func(o *node) bool {
		return o != other && o.Region == other.Region && o.up && o.within(members, since)
	})
}

// While links are cut and processes come and go, groups are agreed. Once nothing
// changes and heartbeats have arrived, groups are equal, disjoint, or one region by
// itself, and their members receive from each other. Healed, all are global again,
// after the longest wait at most.
func TestGroupsAreAgreedAndHeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			change(t, w)
			for range rapid.IntRange(1, 40).Draw(t, "tenths") * 10 {
				w.step()
				agreed(t, w)
			}
		}
		w.run(w.now - epoch + 3*time.Second + 3*time.Second) // the longest pause, and the slowest notice
		for _, a := range w.nodes {
			for _, b := range w.nodes {
				apart(t, w, a, b)
			}
		}
		clear(w.cut)
		w.run(w.now - epoch + deathTime + view.LongestWait + 4*time.Second)
		for _, n := range w.nodes {
			if mode, _ := n.view.Mode(quota.FailClosed); n.up && mode != quota.ModeGlobal {
				t.Fatalf("healed, %s sees %s", n.name(), n.sees())
			}
		}
	})
}

func apart(t *rapid.T, w *world, a, b *node) {
	if !a.up || !b.up || a.Region == b.Region {
		return
	}
	ours, theirs := membersOf(a.view), membersOf(b.view)
	if len(ours) == 1 || len(theirs) == 1 || slices.Equal(ours, theirs) {
		return
	}
	for _, name := range ours {
		if slices.Contains(theirs, name) {
			t.Fatalf("%s uses %v and %s uses %v", a.name(), ours, b.name(), theirs)
		}
		if name != a.Region && (w.cut[a.Region+">"+name] || w.cut[name+">"+a.Region]) {
			t.Fatalf("%s uses %v and the link to %s is cut: %v", a.name(), ours, name, w.cut)
		}
	}
}
