package view_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
)

var regionNames = []string{"a", "b", "c", "d", "e"}

// said remembers what every process advertised, and when.
type said map[*node][]statement

type statement struct {
	from    time.Duration
	members string
}

func (s said) listen(w *world) {
	for _, n := range w.nodes {
		members := strings.Join(n.view.Advertised(), ",")
		if of := s[n]; len(of) == 0 || of[len(of)-1].members != members {
			s[n] = append(of, statement{w.now, members})
		}
	}
}

// within reports whether n advertised members at any time since.
func (s said) within(n *node, members string, since time.Duration) bool {
	until := time.Duration(1<<63 - 1)
	for _, st := range slices.Backward(s[n]) {
		if until < since {
			return false
		}
		if st.members == members {
			return true
		}
		until = st.from
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
		if _, err := w.start(of.Region, weights); err != nil {
			t.Fatal(err)
		}
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
			if _, err := w.start(from+"/2", w.weights); err != nil {
				t.Fatal(err)
			}
		}
	case 4:
		if n := w.find(from + "/2"); n != nil && n.up {
			w.stop(n, rapid.Bool().Draw(t, "planned"))
		}
	case 5:
		w.find(from).frozen = w.now + time.Duration(rapid.IntRange(5, 30).Draw(t, "frozen"))*100*time.Millisecond
	default:
		w.cut[from+">"+to] = from != to
	}
}

// Nobody uses a group that its other members have not advertised, as a whole and
// lately: within the silence after which they would not count, a link, and a look.
// So two groups that overlap and differ live no longer than that. For a while, one
// may be left out who counts on its own region only, if a sibling speaks for it.
func TestAGroupInUseIsWhatItsMembersSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, history := drawWorld(t), said{}
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			change(t, w)
			for range rapid.IntRange(1, 40).Draw(t, "tenths") * 10 {
				history.listen(w)
				w.step()
				grounded(t, w, history)
			}
		}
	})
}

const (
	notice = 50*time.Millisecond + 2*tick // until somebody looks
	lately = meshsync.SilentAfter + 150*time.Millisecond + notice
)

func grounded(t *rapid.T, w *world, history said) {
	for _, n := range w.nodes {
		if !n.up || w.now < n.frozen {
			continue
		}
		members := namesOf(n.view.At(w.now))
		for _, other := range w.nodes {
			if other.region == n.region || !slices.Contains(members, other.region) || !other.up {
				continue
			}
			if want := strings.Join(members, ","); !history.within(other, want, w.now-lately) && !leftOut(w, history, n, other, want) {
				t.Fatalf("at %v %s uses %s, and %s has not advertised it since %v: %+v", w.now-epoch, n.name(), want,
					other.name(), w.now-lately-epoch, history[other])
			}
		}
	}
}

// leftOut reports whether n need not agree with other yet: they are new to each
// other, or n was frozen when other came, and a sibling of other has advertised members.
func leftOut(w *world, history said, n, other *node, members string) bool {
	since := w.now - lately
	if w.now-max(n.began, n.frozen, other.began) > view.NewcomerFor+notice || !history.within(other, other.region, since) {
		return false
	}
	return slices.ContainsFunc(w.nodes, func(o *node) bool {
		return o != other && o.region == other.region && o.up && history.within(o, members, since)
	})
}

func namesOf(v *view.View) []string {
	var names []string
	for i, name := range v.Regions() {
		if v.Members().Has(i) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Once links hold still and beats have arrived, groups are equal, disjoint, or one
// region by itself; and their members see each other both ways. Healed, all are
// global again, after the longest wait at most.
func TestGroupsAreEqualOrDisjointAndHeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			change(t, w)
			w.run(w.now - epoch + time.Duration(rapid.IntRange(1, 40).Draw(t, "tenths"))*100*time.Millisecond)
		}
		w.run(w.now - epoch + 3*time.Second + 3*time.Second) // the longest freeze, and the slowest notice
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
	if !a.up || !b.up || a.region == b.region {
		return
	}
	ours, theirs := a.members(), b.members()
	if len(ours) == 1 || len(theirs) == 1 || slices.Equal(ours, theirs) {
		return
	}
	for _, name := range ours {
		if slices.Contains(theirs, name) {
			t.Fatalf("%s uses %v and %s uses %v", a.name(), ours, b.name(), theirs)
		}
		if name != a.region && (w.cut[a.region+">"+name] || w.cut[name+">"+a.region]) {
			t.Fatalf("%s uses %v and the link to %s is cut: %v", a.name(), ours, name, w.cut)
		}
	}
}
