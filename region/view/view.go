package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	meshsync "github.com/regiond/regiond/sync"
)

// View is what one process could see at one moment. It never changes, nor what it refers to, and is
// safe for concurrent use.
type View struct {
	// Regions are in topology order, in which estimates are given.
	Regions []string
	// Members is M in use, ourselves included, as places in Regions: the candidate, or ourselves alone.
	Members Set
	// Joining is not over yet.
	Joining bool
	// About names the regions that the reason of Mode is about.
	About []string
	// Peers describes every region in the order of Regions, ours included.
	Peers []members.RegionRow
	// Heartbeat is what heartbeats contain: the candidate M in ascending order, whether or not the others
	// agree, and the weights while any process may have others, and while not every region is counted on.
	Heartbeat meshsync.Advertised

	at         time.Duration
	self       int
	current    Set          // the regions whose usage is known
	reason     quota.Reason // why not all regions are in M
	sees       []string     // the regions that enough is received from to count on them; nil while joining
	allocation *allocation
	stale      *View // this view once it is stale; nil in that one
}

// At returns the view to decide by at now: this one, or, when it is older than
// PausedAfter, one in which this process is paused. It allocates nothing.
func (v *View) At(now time.Duration) *View {
	if now-v.at > PausedAfter && v.stale != nil {
		return v.stale
	}
	return v
}

// Mode is the mode of a policy with fail mode f, and why it is not ModeGlobal;
// ReasonNone when it is.
func (v *View) Mode(f quota.FailMode) (quota.Mode, quota.Reason) {
	switch {
	case !v.partitioned():
		return quota.ModeGlobal, quota.ReasonNone
	case v.Joining:
		return quota.ModeJoining, v.reason
	case f == quota.FailShare:
		return quota.ModePartitioned, v.reason
	}
	return quota.ModeStale, v.reason
}

// Ceiling is how many units our region may hold of a limit of units, for a policy
// with fail mode f. estimates is the estimated usage of each region, in whole units,
// rounded up, in the order of Regions, and after them that of former ones; lost is what we admitted and our store has
// lost. closed says that the ceiling is 0 because f is closed, not because the limit
// is reached. It allocates nothing for units that Configure listed.
func (v *View) Ceiling(units int64, f quota.FailMode, estimates []int64, lost int64) (ceiling int64, closed bool) {
	return Ceiling(v.terms(units, f, estimates, lost))
}

// Share is what our region may use of units by itself.
func (v *View) Share(units int64) int64 { return v.allocation.shares(units)[v.self] }

// Explain returns the terms of Ceiling, without the offsets of clocks, and writes out what it computes with them:
// "max(0, shares a 50 + b 50 − used b 12 − held b 9 − lost 0) = 79". held is what of estimates open reservations hold, nil for nothing.
// former names the regions whose estimates follow those of Regions. It allocates.
func (v *View) Explain(units int64, f quota.FailMode, estimates, held []int64, lost int64, former ...string) *quota.CeilingTerms {
	t := v.terms(units, f, estimates, lost)
	terms := &quota.CeilingTerms{Part: t.Shares[v.self], Lost: lost}
	widened := !v.partitioned() || t.widens()
	var shares, used, above []string
	part := func(k int) (estimate, holds int64) { // of what a region uses
		if k < len(held) {
			holds = min(held[k], estimates[k])
		}
		if k < len(estimates) {
			estimate = estimates[k] - holds
		}
		return estimate, holds
	}
	taken := func(name string, k int) string {
		estimate, holds := part(k)
		text := fmt.Sprintf(" − used %s %d", name, max(0, estimate))
		if holds > 0 {
			text += fmt.Sprintf(" − held %s %d", name, holds)
		}
		return text
	}
	for k, p := range v.Peers {
		in := t.Members.Has(k)
		pooled := k == v.self || widened || in
		if pooled {
			shares = append(shares, fmt.Sprintf("%s %d", p.Region, t.Shares[k]))
		}
		if k == v.self {
			continue
		}
		term := quota.PeerTerm{
			Region: p.Region, Weight: p.Weight, Part: t.Shares[k], Counted: in,
			State: p.State.String(), Reason: p.Text, AgeMS: p.HeardMS,
		}
		term.Estimate, term.Held = part(k)
		if term.Reason == "" && !term.Counted {
			term.Reason = v.summary()
		}
		terms.Peers = append(terms.Peers, term)
		switch idle := t.Fail == quota.FailOpen && !in && !t.Current.Has(k); {
		case !pooled:
			above = append(above, fmt.Sprintf(" − above its share %s max(0, %d − %d)", p.Region, t.estimate(k), t.Shares[k]))
		case idle:
			why := p.State.String()
			if v.reason == quota.ReasonProcessPaused { // the states are those of before
				why = v.reason.String()
			}
			used = append(used, fmt.Sprintf(" − used %s 0 (%s, counted as idle)", p.Region, why))
		default:
			used = append(used, taken(p.Region, k))
		}
	}
	for i, name := range former {
		if k := len(v.Regions) + i; k < len(estimates) && estimates[k] > 0 {
			used = append(used, taken(name, k)+" (not in the topology)")
			estimate, holds := part(k)
			terms.Peers = append(terms.Peers, quota.PeerTerm{
				Region: name, Estimate: estimate, Held: holds, State: "former", Reason: "it is not in the topology any more", AgeMS: members.Never,
			})
		}
	}
	ceiling, closed := Ceiling(t)
	terms.Formula = fmt.Sprintf("max(0, shares %s%s%s − lost %d) = %d", strings.Join(shares, " + "),
		strings.Join(used, ""), strings.Join(above, ""), max(0, lost), ceiling)
	if closed {
		terms.Formula = fmt.Sprintf("nothing while partitioned (%v: %s) = 0", v.reason, strings.Join(v.About, ", "))
	}
	return terms
}

func (v *View) terms(units int64, f quota.FailMode, estimates []int64, lost int64) Terms {
	return Terms{
		Shares: v.allocation.shares(units), Estimates: estimates, Self: v.self,
		Members: v.Members, Current: v.current, Lost: lost, Fail: f, Joining: v.Joining,
	}
}

func (v *View) partitioned() bool { return v.Members.Len() < len(v.Regions) }

func (v *View) names(s Set) []string {
	var names []string
	for i, name := range v.Regions {
		if s.Has(i) {
			names = append(names, name)
		}
	}
	return names
}

// whenStale is this view once it is stale. A region that is alone in its topology has
// no peer to miss.
func (v *View) whenStale() *View {
	if len(v.Regions) == 1 {
		return nil
	}
	old := *v
	old.Members, old.current = Set{}.With(v.self), Set{}
	old.Joining, old.reason = false, quota.ReasonProcessPaused
	old.About = slices.Delete(slices.Clone(v.Regions), v.self, v.self+1)
	return &old
}

// ageMS is how long ago at was, Never for 0.
func ageMS(now, at time.Duration) int64 {
	if at == 0 {
		return members.Never
	}
	return max(0, now-at).Milliseconds()
}

// rows describes every region in topology order, our own with its siblings.
func (v *Viewer) rows(now time.Duration, view *View, live, known map[string][]*members.Member) []members.RegionRow {
	rows := make([]members.RegionRow, len(view.Regions))
	for i, name := range view.Regions {
		if s := v.peers[name]; s != nil {
			rows[i] = s.row(now, live[name])
		} else {
			rows[i] = members.RegionRow{
				Self: true, State: members.StateSelf, SinceMS: (now - v.started).Milliseconds(), HeardMS: members.Never, AckedMS: members.Never,
			}
		}
		rows[i].Region, rows[i].Weight = name, view.allocation.weights[i].Weight
		rows[i].InUse, rows[i].Processes = view.Members.Has(i), processRows(now, known[name])
	}
	return rows
}

func (s *peerState) row(now time.Duration, live []*members.Member) members.RegionRow {
	p := members.RegionRow{
		State: s.state, Reason: s.cause, SinceMS: (now - s.since).Milliseconds(), RemainingMS: s.remaining(now).Milliseconds(),
		HeardMS: members.Never, AckedMS: members.Never,
	}
	if len(live) > 0 {
		received, acked := now, now
		for _, k := range live {
			received, acked = min(received, k.ReceivedAt), min(acked, k.AckedAt) // 0, for never, is the oldest
		}
		p.HeardMS, p.AckedMS = ageMS(now, received), ageMS(now, acked)
	}
	if !s.in {
		p.Text = s.text(now, live)
	}
	return p
}

func processRows(now time.Duration, known []*members.Member) []members.ProcessRow {
	rows := make([]members.ProcessRow, 0, len(known))
	for _, k := range known {
		rows = append(rows, members.ProcessRow{
			Instance: k.Instance, Boot: time.UnixMicro(k.Boot).UTC(), State: members.Judge(now, k).State,
			HeardMS: ageMS(now, k.ReceivedAt), AckedMS: ageMS(now, k.AckedAt), UnsentMS: k.Unsent.Milliseconds(), RTTMS: milliseconds(k.RTT),
			MissingMS: k.Missing(now).Milliseconds(), Newest: k.Newest, Complete: k.Complete,
			Synced: k.Synced, Newcomer: newcomer(now, k), Gossip: reported(k), Members: slices.Clone(k.Members),
		})
	}
	return rows
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func reported(p *members.Member) members.Word { return cmp.Or(p.Reported(), "unknown") }

// text says why the region is treated as unreachable, and names the processes concerned.
func (s *peerState) text(now time.Duration, live []*members.Member) string {
	switch s.state {
	case members.StateNeverSeen:
		return "none of its processes has been seen yet"
	case members.StateLeft:
		return "all of its processes announced that they stop"
	case members.StateDead:
		return "its processes are silent, and gossip reports them dead"
	case members.StateWaiting:
		return fmt.Sprintf("it is healthy again and will be counted on in %v", round(s.remaining(now)))
	}
	var texts []string
	for _, p := range live {
		if h := members.Judge(now, p); h.State == s.state || s.state == members.StateJoining && !h.Complete {
			texts = append(texts, textOf(now, p, h))
		}
	}
	if len(texts) == 0 {
		return "none of its processes is known any more"
	}
	return strings.Join(texts, "; ")
}

func textOf(now time.Duration, p *members.Member, h members.Health) string {
	name := "process " + p.Instance
	switch h.State {
	case members.StateSilent:
		if p.ReceivedAt != 0 {
			return fmt.Sprintf("%s has been silent for %v (gossip: %s)", name, round(now-p.ReceivedAt), reported(p))
		}
		text := fmt.Sprintf("no message of %s has arrived on the bus (gossip: %s)", name, reported(p))
		if p.Reported() == members.Alive {
			text += ": check that the NATS servers of both regions are connected and that users may subscribe"
		}
		return text
	case members.StateBehind:
		if p.View.OtherKey {
			return name + " has another key of partitions, so its partitions cannot be told apart from ours: " +
				"give all processes the same one in key_file"
		}
		if p.View.Unreadable {
			return name + " has other regions or weights, in a form that cannot be read here: give all processes the same topology and version"
		}
		if p.Full {
			return name + " has no room left and rejects usage"
		}
		if p.Unsent > members.BehindAfter {
			return fmt.Sprintf("%s has usage that it could not send for %v", name, round(p.Unsent))
		}
		return fmt.Sprintf("usage that %s published is missing here for %v: it was lost or refused", name, round(p.Missing(now)))
	case members.StateOneWay:
		if p.AckedAt == 0 {
			return name + " has acknowledged none of our messages"
		}
		return fmt.Sprintf("%s has acknowledged none of our messages of the last %v", name, round(now-p.AckedAt))
	case members.StateJoining:
		if p.AckedAt == 0 {
			return name + " has only just appeared"
		}
		return name + " has not sent all of its usage yet"
	}
	if !h.Complete {
		return name + " has yet to send usage that is missing here, or what it knows of a region that is away"
	}
	return name + " is healthy"
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

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
		return "starting; waiting for " + cmp.Or(about, "this region's Redis")
	case quota.ReasonOneWay:
		return fmt.Sprintf("our messages do not reach %s, or not for long enough yet; counting on %s", about, group)
	case quota.ReasonViewsDiffer:
		return fmt.Sprintf("views differ from ours in %s; counting on %s", about, group)
	}
	return fmt.Sprintf("no up-to-date usage of %s, or not for long enough yet; counting on %s", about, group)
}
