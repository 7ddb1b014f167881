package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
	"github.com/regiond/regiond/test/golden"
)

var three = []quota.Weight{{Region: "eu-west", Weight: 1}, {Region: "us-east", Weight: 1}, {Region: "ap-south", Weight: 1}}

// threeRegions is a world of three, all global after 5 s.
func threeRegions(t *testing.T) *world {
	t.Helper()
	w := newWorld(three)
	for _, r := range three {
		w.start(r.Region)
	}
	w.run(5 * time.Second)
	return w
}

// A view that is not renewed is read as that of a paused process.
func TestAStaleViewIsThatOfAPausedProcess(t *testing.T) {
	w := threeRegions(t)
	v := w.find("eu-west").view
	seen := w.find("eu-west").view.Peers[1].SinceMS // any age will do to see that views do not change
	for _, row := range []struct {
		age    time.Duration
		mode   quota.Mode
		reason quota.Reason
		want   int64
	}{
		{0, quota.ModeGlobal, quota.ReasonNone, 85},
		{view.PausedAfter - 50*time.Millisecond, quota.ModeGlobal, quota.ReasonNone, 85},
		{view.PausedAfter + time.Millisecond, quota.ModePartitioned, quota.ReasonProcessPaused, 33},
	} {
		at := v.At(w.now + row.age)
		mode, reason := at.Mode(quota.FailShare)
		got, _ := at.Ceiling(100, quota.FailShare, []int64{0, 12, 3}, 0)
		if mode != row.mode || reason != row.reason || got != row.want {
			t.Errorf("at age %v: %v because of %q, ceiling %d", row.age, mode, reason, got)
		}
	}
	if got, _ := v.Ceiling(600, quota.FailShare, []int64{0, 12, 3}, 0); got != 585 {
		t.Errorf("the ceiling of 600, which Configure did not list, is %d, want 585", got)
	}
	w.run(10 * time.Second)
	if v.Peers[1].SinceMS != seen {
		t.Error("a view changed after it was returned")
	}
	one := view.NewViewer("a", 0, topologyOf([]quota.Weight{{Region: "a", Weight: 1}}))
	alone, _ := one.Observe(view.Input{Now: epoch})
	if mode, _ := alone.At(epoch + time.Hour).Mode(quota.FailClosed); mode != quota.ModeGlobal {
		t.Errorf("a region alone in its topology is %v, has nothing to miss", mode)
	}
}

// The texts are read by people; testdata/explain.golden shows them all.
func TestExplain(t *testing.T) {
	var got strings.Builder
	show := func(when string, v *view.View, fails ...quota.FailMode) {
		for _, f := range fails {
			e := v.Explain(100, f, []int64{50, 12, 40}, nil, 2)
			mode, reason := v.Mode(f)
			fmt.Fprintf(&got, "%s, %v\n  %v %v\n  %s\n", when, f, mode, reason, e.Formula)
			for _, p := range e.Peers {
				fmt.Fprintf(&got, "  %s weight %d share %d used %d counted %v %s %s\n",
					p.Region, p.Weight, p.Part, p.Estimate, p.Counted, p.State, p.Reason)
			}
			if ceiling, _ := v.Ceiling(100, f, []int64{50, 12, 40}, 2); !strings.HasSuffix(e.Formula, fmt.Sprintf("= %d", ceiling)) {
				t.Errorf("%s, %v: the ceiling is %d, explained by %q", when, f, ceiling, e.Formula)
			}
		}
	}
	all := []quota.FailMode{quota.FailShare, quota.FailOpen, quota.FailClosed}
	w := threeRegions(t)
	eu := w.find("eu-west")
	show("all connected", eu.view, quota.FailShare)
	held := eu.view.Explain(100, quota.FailShare, []int64{50, 12, 40, 7}, []int64{9, 5, 40, 3}, 2, "former")
	fmt.Fprintf(&got, "reservations hold units\n  %s\n", held.Formula)
	for _, p := range held.Peers {
		fmt.Fprintf(&got, "  %s used %d held %d\n", p.Region, p.Estimate, p.Held)
	}
	w.cut["ap-south>eu-west"], w.cut["eu-west>ap-south"] = true, true
	w.cut["ap-south>us-east"], w.cut["us-east>ap-south"] = true, true
	w.run(8 * time.Second)
	show("ap-south is cut off", eu.view, all...)
	w.cut["eu-west>us-east"] = true
	w.run(12 * time.Second)
	show("us-east does not receive from us", eu.view, quota.FailOpen)
	clear(w.cut)
	w.run(13 * time.Second)
	show("healing", eu.view, quota.FailShare)
	w.run(60 * time.Second)
	w.cut["us-east>ap-south"] = true
	w.run(65 * time.Second)
	show("the others differ", eu.view, quota.FailShare)
	eu.paused = w.now + 10*time.Second
	w.run(75100 * time.Millisecond)
	show("process paused", eu.view, all...)
	w.stop(eu, false)
	late := w.start("eu-west")
	show("starting", late.view, all...)
	w.cut["us-east>ap-south"] = false
	w.run(100 * time.Second)
	show("a view that is not renewed", late.view.At(w.now+view.PausedAfter+time.Millisecond), quota.FailOpen)
	w.find("ap-south").Full = true
	w.run(102 * time.Second)
	show("ap-south is behind", late.view, quota.FailOpen)

	golden.Compare(t, "explain.golden", got.String())
}

// Events and rows of a region's life, as a log and a status page would show them.
func TestEventsAndRows(t *testing.T) {
	var got strings.Builder
	w := threeRegions(t)
	us := w.find("us-east")
	row := func() {
		for _, p := range w.find("eu-west").view.Peers {
			fmt.Fprintf(&got, "    row %s %v %q in use %v, processes %d: %s\n",
				p.Region, p.State, p.Reason.String(), p.InUse, len(p.Processes), p.Text)
		}
	}
	w.cut["us-east>eu-west"] = true
	w.run(7 * time.Second)
	row()
	clear(w.cut)
	w.run(8 * time.Second)
	row()
	w.run(12 * time.Second)
	us.Full = true
	w.run(13 * time.Second)
	row()
	us.Full = false
	w.stop(us, true)
	w.run(14 * time.Second)
	row()
	eu := w.find("eu-west")
	eu.reload([]quota.Weight{three[0], three[2]})
	eu.paused = w.now + 2*time.Second
	w.run(20 * time.Second)
	row()
	for _, e := range eu.events {
		fmt.Fprintf(&got, "%6.2fs %v %s %q → %q %q: %s\n", (e.at - epoch).Seconds(), e.Kind, e.Region, e.From, e.To, e.Reason.String(), e.Text)
	}
	// A new region whose NATS server is not connected to ours.
	for _, word := range []members.Word{members.Alive, members.Dead} {
		w := newWorld(two)
		w.cut["us-east>eu-west"], w.gossip["us-east"] = true, word
		eu := w.start("eu-west")
		w.start("us-east")
		w.run(5 * time.Second)
		fmt.Fprintf(&got, "nothing arrives, and gossip has it as %s: %s\n", word, eu.view.Peers[1].Text)
	}
	golden.Compare(t, "events.golden", got.String())
}

// Of several runs of an instance the newest counts, however lively the others are; but one that
// does not send supersedes nothing: it is a duplicate, which keeps quiet for the first one, or
// one that has stopped.
func TestOneRunOfAnInstanceCounts(t *testing.T) {
	silent := func(word members.Word, left time.Duration) func(*members.Member) {
		return func(m *members.Member) {
			*m = members.Member{Process: m.Process, Gossip: members.Gossip{State: word}, Bus: members.Bus{LeftUntil: left}}
		}
	}
	for name, row := range map[string]struct {
		later  int64
		change func(other *members.Member)
	}{
		"an earlier run":             {-1, func(m *members.Member) { m.Members, m.Full = nil, true }},
		"a later one that is silent": {1, silent(members.Alive, 0)},
		"a later one that left":      {1, silent(members.Dead, 1)},
	} {
		w := threeRegions(t)
		eu := w.find("eu-west")
		in := view.Input{Now: w.now + tick}
		for _, other := range w.nodes[1:] {
			p := *eu.peers[other]
			o := p
			row.change(&o)
			o.Boot += row.later
			in.Processes = append(in.Processes, o, p)
		}
		for range 3 {
			if got, _ := eu.viewer.Observe(in); got.Members.Len() != 3 {
				t.Errorf("%s: M is %v, want all three", name, membersOf(got))
			}
		}
	}
}
