package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// recorder writes down what changed from one view to the next; before is nil the
// first time.
type recorder struct {
	now           time.Duration
	before, after *View
	events        []Event
}

func (r *recorder) add(e Event) {
	e.At = r.now
	r.events = append(r.events, e)
}

func (r *recorder) frozen(gap time.Duration) {
	r.add(Event{
		Kind: Frozen, Reason: quota.ReasonProcessPaused,
		Text: fmt.Sprintf("this process stood still for %v and distrusts what it holds until every peer has told it again", round(gap)),
	})
}

func (r *recorder) topology(differed, differ bool, waiting []string) {
	if differed == differ {
		return
	}
	e := Event{
		Kind: TopologyChanged, From: "differ", To: "same",
		Text: "every region has our regions and weights; limits are divided by these alone",
	}
	if differ {
		e.From, e.To = e.To, e.From
		e.Text = "regions or weights differ; until all agree, the smaller part applies"
		if len(waiting) > 0 {
			e.Text += ": " + strings.Join(waiting, ", ")
		}
	}
	r.add(e)
}

func (r *recorder) regions(before map[string]State) {
	for _, p := range r.after.peers {
		was, known := before[p.Region]
		if !known || was == p.State {
			continue
		}
		text := p.Text
		if text == "" {
			text = "it is heard, hears us, and has told all of its totals"
		}
		r.add(Event{
			Kind: RegionChanged, Region: p.Region, From: was.String(), To: p.State.String(),
			Reason: p.Reason, Text: fmt.Sprintf("region %s is %v: %s", p.Region, p.State, text),
		})
	}
}

func (r *recorder) mode() {
	mode, reason := r.after.Mode(quota.FailShare)
	if r.before == nil {
		r.add(Event{Kind: ModeChanged, To: mode.String(), Reason: reason, Text: r.after.why()})
		return
	}
	if was, _ := r.before.Mode(quota.FailShare); was != mode {
		r.add(Event{Kind: ModeChanged, From: was.String(), To: mode.String(), Reason: reason, Text: r.after.why()})
		return
	}
	from, to := r.before.names(r.before.members), r.after.names(r.after.members)
	if !slices.Equal(from, to) {
		r.add(Event{
			Kind: MembersChanged, From: strings.Join(from, ","), To: strings.Join(to, ","),
			Reason: reason, Text: r.after.why(),
		})
	}
}

// why says in a sentence how much we see and why it is not everything.
func (v *View) why() string {
	about := strings.Join(v.about, ", ")
	group := strings.Join(v.names(v.members), ", ")
	switch v.reason {
	case quota.ReasonNone:
		return "every region is fresh and hears us"
	case quota.ReasonProcessPaused:
		return fmt.Sprintf("this process stood still; it waits to hear again from %s", about)
	case quota.ReasonJoining:
		return fmt.Sprintf("starting; waiting for %s", about)
	case quota.ReasonOneWay:
		return fmt.Sprintf("what we send does not reach %s, or not for long enough yet; counting on %s", about, group)
	case quota.ReasonViewsDiffer:
		return fmt.Sprintf("other views of who is there: %s; counting on %s", about, group)
	}
	return fmt.Sprintf("no up-to-date word from %s, or not for long enough yet; counting on %s", about, group)
}
