package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
)

// EventKind is the kind of an Event.
type EventKind uint8

const (
	// ModeChanged: From and To are modes, as under fail mode share. The first call of
	// Observe reports the first mode, from "".
	ModeChanged EventKind = iota
	// MembersChanged: another M is in use, in the same mode; From and To list its
	// regions.
	MembersChanged
	// RegionChanged: From and To are states of Region.
	RegionChanged
	// ProcessPaused: this process was paused.
	ProcessPaused
	// TopologyChanged: From and To are "same" or "differ".
	TopologyChanged
)

// String returns the word used in logs and metrics.
func (k EventKind) String() string {
	return quota.EnumName([]string{"mode", "members", "region", "process_paused", "topology"}, uint8(k))
}

// Event is a change that is worth a log line and a count. It is a value.
type Event struct {
	Kind     EventKind
	Region   string // of RegionChanged
	From, To string
	Reason   quota.Reason // why not all regions are counted on; of RegionChanged, why that one is not
	Text     string       // the same for a reader, with names and ages
}

// recorder collects what changed from one view to the next; before is nil the first
// time.
type recorder struct {
	before, after *View
	events        []Event
}

func (r *recorder) add(e Event) { r.events = append(r.events, e) }

func (r *recorder) paused(gap time.Duration) {
	r.add(Event{
		Kind: ProcessPaused, Reason: quota.ReasonProcessPaused,
		Text: fmt.Sprintf("this process was paused for %v; no peer is counted on until it has sent all of its usage again", round(gap)),
	})
}

func (r *recorder) topology(drifted, drifts bool, waiting []string) {
	if drifted == drifts {
		return
	}
	e := Event{
		Kind: TopologyChanged, From: "differ", To: "same",
		Text: "every region has our regions and weights, and limits are divided by these alone",
	}
	if drifts {
		e.From, e.To = e.To, e.From
		e.Text = "regions or weights differ; until all agree, the smallest share applies"
		if len(waiting) > 0 {
			e.Text += ": " + strings.Join(waiting, ", ")
		}
	}
	r.add(e)
}

func (r *recorder) regions() {
	before := map[string]members.State{} // a new region was never seen
	if r.before != nil {
		for _, p := range r.before.peers {
			before[p.Region] = p.State
		}
	}
	for _, p := range r.after.peers {
		was := before[p.Region]
		if p.Self || was == p.State {
			continue
		}
		text := p.Text
		if text == "" {
			text = "it acknowledges our messages and has sent all of its usage"
		}
		r.add(Event{
			Kind: RegionChanged, Region: p.Region, From: was.String(), To: p.State.String(),
			Reason: p.Reason, Text: fmt.Sprintf("region %s is %v: %s", p.Region, p.State, text),
		})
	}
}

func (r *recorder) mode() {
	mode, reason := r.after.Mode(quota.FailShare)
	e := Event{Kind: ModeChanged, To: mode.String(), Reason: reason, Text: r.after.summary()}
	if r.before == nil {
		r.add(e)
		return
	}
	if was, _ := r.before.Mode(quota.FailShare); was != mode {
		e.From = was.String()
		r.add(e)
		return
	}
	from, to := r.before.names(r.before.members), r.after.names(r.after.members)
	if !slices.Equal(from, to) {
		e.Kind, e.From, e.To = MembersChanged, strings.Join(from, ","), strings.Join(to, ",")
		r.add(e)
	}
}

// summary says in a sentence which regions are counted on, and why not all.
func (v *View) summary() string {
	about := strings.Join(v.about, ", ")
	group := strings.Join(v.names(v.members), ", ")
	switch v.reason {
	case quota.ReasonNone:
		return "every region is counted on"
	case quota.ReasonProcessPaused:
		return fmt.Sprintf("this process was paused; waiting for new messages from %s", about)
	case quota.ReasonJoining:
		return fmt.Sprintf("starting; waiting for %s", about)
	case quota.ReasonOneWay:
		return fmt.Sprintf("our messages do not reach %s, or not for long enough yet; counting on %s", about, group)
	case quota.ReasonViewsDiffer:
		return fmt.Sprintf("views differ from ours in %s; counting on %s", about, group)
	}
	return fmt.Sprintf("no up-to-date usage of %s, or not for long enough yet; counting on %s", about, group)
}
