package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/gossip"
	meshsync "github.com/regiond/regiond/sync"
)

// Never is the age, in ms, of what did not happen.
const Never = -1

// ageMS is how long ago at was, Never for 0.
func ageMS(now, at time.Duration) int64 {
	if at == 0 {
		return Never
	}
	return max(0, now-at).Milliseconds()
}

// Peer is one region as this process sees it: a row of GET /v1/regions. Ages and spans
// are in milliseconds.
type Peer struct {
	Region      string        `json:"name"`
	Weight      int64         `json:"weight"`
	Self        bool          `json:"self"`
	State       State         `json:"state"`
	InUse       bool          `json:"counted"`                // it is in M: its share is pooled with ours
	Reason      quota.Reason  `json:"reason,omitempty"`       // why it is not counted on
	Text        string        `json:"detail,omitempty"`       // the same in words
	SinceMS     int64         `json:"since_ms"`               // how long it has been in this state
	HeardMS     int64         `json:"heard_ms"`               // age of its newest message; of its process silent longest
	AckedMS     int64         `json:"acked_ms"`               // age of the newest message of ours that it acknowledged; of its process furthest behind
	RemainingMS int64         `json:"remaining_ms,omitempty"` // until it is counted on again, if it stays good
	Processes   []PeerProcess `json:"processes,omitempty"`
}

// PeerProcess is one process of a region, in our own region a sibling.
type PeerProcess struct {
	Instance string    `json:"instance"`
	Boot     time.Time `json:"boot"`
	State    State     `json:"state"` // by itself; StateDead or StateLeft when it no longer counts
	HeardMS  int64     `json:"heard_ms"`
	AckedMS  int64     `json:"acked_ms"`
	UnsentMS int64     `json:"unsent_ms"`
	// MissingMS is for how long usage that it has published is missing here; 0: none is.
	MissingMS int64 `json:"missing_ms"`
	// Newest is the number of the newest usage that it has published, and Complete the one up
	// to which none is missing.
	Newest   uint64       `json:"newest"`
	Complete uint64       `json:"complete"`
	RTTMS    float64      `json:"rtt_ms"`
	Synced   bool         `json:"digested"`           // a whole snapshot of its usage arrived
	Newcomer bool         `json:"newcomer,omitempty"` // a healthy region is evaluated without it
	Gossip   gossip.State `json:"gossip"`             // "unknown" where gossip does not know it
	Members  []string     `json:"members"`            // the regions that it would count on
}

// rows describes every region in topology order, our own with its siblings.
func (v *Viewer) rows(now time.Duration, view *View, live, known map[string][]*Process) []Peer {
	rows := make([]Peer, len(view.regions))
	for i, name := range view.regions {
		if s := v.peers[name]; s != nil {
			rows[i] = s.row(now, live[name])
		} else {
			rows[i] = Peer{Self: true, State: StateSelf, SinceMS: (now - v.started).Milliseconds(), HeardMS: Never, AckedMS: Never}
		}
		rows[i].Region, rows[i].Weight = name, view.allocation.weights[i]
		rows[i].InUse, rows[i].Processes = view.members.Has(i), v.processRows(now, known[name])
	}
	return rows
}

// row describes a peer region.
func (s *peerState) row(now time.Duration, live []*Process) Peer {
	p := Peer{
		State: s.state, Reason: s.cause, SinceMS: (now - s.since).Milliseconds(), RemainingMS: s.remaining(now).Milliseconds(),
		HeardMS: Never, AckedMS: Never,
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

func (v *Viewer) processRows(now time.Duration, known []*Process) []PeerProcess {
	rows := make([]PeerProcess, 0, len(known))
	for _, k := range known {
		row := PeerProcess{
			Instance: k.Instance, Boot: time.UnixMicro(k.Boot).UTC(), State: k.state(now),
			HeardMS: ageMS(now, k.ReceivedAt), AckedMS: ageMS(now, k.AckedAt), UnsentMS: k.Unsent.Milliseconds(), RTTMS: milliseconds(k.RTT),
			MissingMS: k.missing(now).Milliseconds(), Newest: k.Newest, Complete: k.Complete,
			Synced: k.Synced, Newcomer: v.histories.newcomer(now, k), Gossip: k.gossipState(),
			Members: slices.Clone(k.Members),
		}
		switch {
		case k.live(now):
		case k.Leaving:
			row.State = StateLeft
		case k.Gossip == gossip.Dead:
			row.State = StateDead
		}
		rows = append(rows, row)
	}
	return rows
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (p *Process) gossipState() gossip.State { return cmp.Or(p.Gossip, "unknown") }

// text says why the region is not counted on, and names the processes concerned.
func (s *peerState) text(now time.Duration, live []*Process) string {
	switch s.state {
	case StateNeverSeen:
		return "none of its processes has been seen yet"
	case StateLeft:
		return "all of its processes announced that they stop"
	case StateDead:
		return "its processes are silent, and gossip reports them dead"
	case StateWaiting:
		return fmt.Sprintf("it is healthy again and will be counted on in %v", round(s.remaining(now)))
	}
	var texts []string
	for _, p := range live {
		if p.state(now) == s.state || s.state == StateJoining && !p.knowsAll() {
			texts = append(texts, p.text(now))
		}
	}
	if len(texts) == 0 {
		return "none of its processes is known any more"
	}
	return strings.Join(texts, "; ")
}

// text says what is wrong with the process.
func (p *Process) text(now time.Duration) string {
	name := "process " + p.Instance
	switch p.state(now) {
	case StateSilent:
		if p.ReceivedAt == 0 {
			return fmt.Sprintf("no message of %s has arrived on the bus (gossip: %s)%s", name, p.gossipState(), p.busHint())
		}
		return fmt.Sprintf("%s has been silent for %v (gossip: %s)", name, round(now-p.ReceivedAt), p.gossipState())
	case StateBehind:
		if p.OtherKey {
			return name + " has another key of partitions, so its partitions cannot be told apart from ours: " +
				"give all processes the same one in key_file"
		}
		if p.unreadable {
			return name + " has other regions or weights, in a form that cannot be read here: give all processes the same topology and version"
		}
		if p.Full {
			return name + " has no room left and rejects usage"
		}
		if p.Unsent > meshsync.BehindAfter {
			return fmt.Sprintf("%s has usage that it could not send for %v", name, round(p.Unsent))
		}
		return fmt.Sprintf("usage that %s published is missing here for %v: it was lost or refused", name, round(p.missing(now)))
	case StateOneWay:
		if p.AckedAt == 0 {
			return name + " has acknowledged none of our messages"
		}
		return fmt.Sprintf("%s has acknowledged none of our messages of the last %v", name, round(now-p.AckedAt))
	case StateJoining:
		if p.AckedAt == 0 {
			return name + " has only just appeared"
		}
		return name + " has not sent all of its usage yet"
	}
	if !p.knowsAll() {
		return name + " has yet to send usage that is missing here, or what it knows of a region that is away"
	}
	return name + " is healthy"
}

// busHint is what to check when gossip reaches a process and the bus does not.
func (p *Process) busHint() string {
	if p.Gossip != gossip.Alive {
		return ""
	}
	return ": check that the NATS servers of both regions are connected and that users may subscribe"
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
