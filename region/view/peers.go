package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/region/members"
)

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

// text says why the region is not counted on, and names the processes concerned.
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
		if p.ReceivedAt == 0 {
			return fmt.Sprintf("no message of %s has arrived on the bus (gossip: %s)%s", name, reported(p), busHint(p))
		}
		return fmt.Sprintf("%s has been silent for %v (gossip: %s)", name, round(now-p.ReceivedAt), reported(p))
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

// busHint is what to check when gossip reaches a process and the bus does not.
func busHint(p *members.Member) string {
	if p.Reported() != members.Alive {
		return ""
	}
	return ": check that the NATS servers of both regions are connected and that users may subscribe"
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
