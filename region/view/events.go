package view

import (
	"cmp"
	"fmt"
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

func pauseEvent(gap time.Duration) Event {
	return Event{
		Kind: ProcessPaused, Reason: quota.ReasonProcessPaused,
		Text: fmt.Sprintf("this process was paused for %v; no peer is counted on until it has sent all of its usage again", round(gap)),
	}
}

// topologyEvent is that regions or weights begin or cease to differ; waiting names the processes that lack ours.
func topologyEvent(drifts bool, waiting []string) Event {
	if !drifts {
		return Event{
			Kind: TopologyChanged, From: "differ", To: "same",
			Text: "every region has our regions and weights, and limits are divided by these alone",
		}
	}
	text := "regions or weights differ; until all agree, the smallest share applies"
	if len(waiting) > 0 {
		text += ": " + strings.Join(waiting, ", ")
	}
	return Event{Kind: TopologyChanged, From: "same", To: "differ", Text: text}
}

// changes is what differs between a view and the one before, which is nil at first: states of
// regions, and the mode or else the group in use.
func changes(before, after *View) (events []Event) {
	states := map[string]members.State{} // a new region was never seen
	if before != nil {
		for _, p := range before.Peers {
			states[p.Region] = p.State
		}
	}
	for _, p := range after.Peers {
		was := states[p.Region]
		if p.Self || was == p.State {
			continue
		}
		text := cmp.Or(p.Text, "it acknowledges our messages and has sent all of its usage")
		events = append(events, Event{
			Kind: RegionChanged, Region: p.Region, From: was.String(), To: p.State.String(),
			Reason: p.Reason, Text: fmt.Sprintf("region %s is %v: %s", p.Region, p.State, text),
		})
	}
	mode, reason := after.Mode(quota.FailShare)
	e := Event{Kind: ModeChanged, To: mode.String(), Reason: reason, Text: after.summary()}
	if before == nil {
		if len(after.Regions) > 1 { // a region alone counts on nobody
			events = append(events, e)
		}
		return events
	}
	was, _ := before.Mode(quota.FailShare)
	if e.From = was.String(); was == mode {
		from, to := before.names(before.Members), after.names(after.Members)
		e.Kind, e.From, e.To = MembersChanged, strings.Join(from, ","), strings.Join(to, ",")
	}
	if e.From != e.To {
		events = append(events, e)
	}
	return events
}

func (v *View) summary() string {
	about := strings.Join(v.About, ", ")
	group := strings.Join(v.names(v.Members), ", ")
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
