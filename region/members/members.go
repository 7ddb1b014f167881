// Package members is the table of a deployment's processes, as one of them knows the others:
//
//	mesh ──── Bus ───▶ ┌────────┐
//	gossip ── Gossip ▶ │ Member │ ── Judge ──▶ mesh, view, top, resets, status
//	state ─── Store ─▶ │        │
//	view ──── View ──▶ └────────┘
//
// Each source writes its own field of a process and no other's, and Judge alone says what they
// mean together. Nothing here opens a connection, reads a clock or logs.
package members

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
)

// Member is one process. Times are on this process's monotonic clock, where none is named; 0
// means never.
type Member struct {
	quota.Process
	Bus
	Gossip Gossip
	Store  Store
	View   View
}

// Name is "<region>/<instance>".
func (m *Member) Name() string { return m.Region + "/" + m.Instance }

// Bus is what the mesh received of a process. What heartbeats contain is zero until the first.
type Bus struct {
	ReceivedAt time.Duration // when its newest usage or heartbeat arrived
	ClockUS    int64         // its store clock at ReceivedAt
	Seq        uint64        // number of that message
	// AckedAt is when we sent the newest of our messages that it acknowledges; 0: it
	// has not acknowledged any.
	AckedAt time.Duration
	// Heartbeats counts its heartbeats since it appeared, or was last silent for longer
	// than SilentAfter.
	Heartbeats int
	// Members, Topology, Weights, Unsent, Full and Key are those of its newest heartbeat.
	Members  []string
	Topology uint64
	Weights  []quota.Weight
	Unsent   time.Duration // age of its oldest change that was not published
	Full     bool
	Key      uint64 // wire.Key.Fingerprint of its ids; 0: unknown
	// Synced: a snapshot of all of its counters, whoever requested it, was merged since it
	// appeared, or since another process of its region ended of which changes were missing.
	Synced bool
	// MissingSince is since when changes that it has published are missing here, because
	// they were lost or refused; 0: none are, or it is not Synced.
	MissingSince time.Duration
	// Newest is the number of the newest changes that it has published, as far as known, and
	// Complete the one up to which none are missing here.
	Newest, Complete uint64
	// ForwardsMissing: it has yet to send what it knows of a region from which nothing is
	// received, since it last counted on that region itself.
	ForwardsMissing bool
	RTT             time.Duration // the smallest of the last eight round trips; 0: none yet
	// LeftUntil is not 0 once it announced that it stops: until then its late messages must
	// not bring it back.
	LeftUntil time.Duration
	// Own is the mesh's own state of the process; nil: it has none, so nothing was received.
	Own any
}

// Word says whether a process answers, by another source than the bus. It is used in JSON,
// metrics and logs.
type Word string

// The words for a process; "" where nothing is known of it.
const (
	Alive Word = "alive" // it answers, here or where it was asked
	Dead  Word = "dead"  // it stopped answering, or left; the bus knows which
)

// Gossip is what gossip says of a process. It explains, and can end the wait for one that is
// silent; it never replaces the bus.
type Gossip struct {
	Addr       string    `json:"addr"` // host:port of its gossip
	State      Word      `json:"state"`
	Since      time.Time `json:"since"`       // when this process first saw it in this State, UTC
	ConfigHash string    `json:"config_hash"` // of its configuration in force; "" when it has none
	Version    string    `json:"version"`
}

// Store is what our region's store says of a sibling, another process of our region.
type Store struct {
	Read  bool // the store was read: what it says is in place of what gossip says
	Alive bool // its entry changes
	// Entry is its field of the region's hash, and At when it was first read so; "" and 0: it has
	// none. Moved: it was another one before.
	Entry string
	At    time.Duration
	Moved bool
	// Sees is the regions that it receives from, its own included; nil while it joins.
	Sees []string
}

// View is what the view remembers of a process, to know what it is worth.
type View struct {
	First      time.Duration // when it was first to be taken into account
	Ready      bool          // it was fresh once
	Advertised bool          // it advertised more than its own region once
	// OtherKey: its partition ids are made with another key than ours, so its usage means
	// nothing here.
	OtherKey bool
	// Unreadable: its topology differs, and its weights are missing or not of its hash.
	Unreadable bool
}

// Table holds each process once. Its lock is taken for each message: whoever holds it calls
// nothing that waits or takes another lock, and readers copy.
type Table struct {
	Self    quota.Process // this process
	changed chan struct{}

	sync.Mutex // guards All and what it refers to
	All        map[quota.Process]*Member
	StoreRead  bool // the region's store was read
}

// New returns a Table of the process self that knows no other.
func New(self quota.Process) *Table {
	return &Table{Self: self, changed: make(chan struct{}, 1), All: map[quota.Process]*Member{}}
}

// Changed signals a change that a view depends on: a process appeared, left, was forgotten or
// synced, its heartbeat differs from the one before, or gossip has another word of it. It holds
// at most one signal, for one reader. Silence and missing changes do not signal: see ReceivedAt
// and MissingSince.
func (t *Table) Changed() <-chan struct{} { return t.changed }

// Signal has Changed signal.
func (t *Table) Signal() { signal.Send(t.changed) }

// Entry is a process's entry, a new one where there is none. The lock is held.
func (t *Table) Entry(p quota.Process) *Member {
	m := t.All[p]
	if m == nil {
		m = &Member{Process: p, Store: Store{Read: t.StoreRead && p.Region == t.Self.Region}}
		t.All[p] = m
	}
	return m
}

// Prune drops the entry of a process of which no source knows anything any more. The lock is
// held.
func (t *Table) Prune(m *Member) {
	if m.ReceivedAt == 0 && m.LeftUntil == 0 && m.Gossip.State == "" && m.Store.Entry == "" {
		delete(t.All, m.Process)
	}
}

// SetViews notes what the view remembers of these processes.
func (t *Table) SetViews(of []Member) {
	t.Lock()
	defer t.Unlock()
	for i := range of {
		if m := t.All[of[i].Process]; m != nil {
			m.View = of[i].View
		}
	}
}

// Others is a copy of every other process, sorted by region, instance and boot. An entry of the
// store alone is none unless it is alive, nor an earlier run of ours. Slices are shared and
// must not be changed.
func (t *Table) Others() []Member {
	t.Lock()
	defer t.Unlock()
	others := make([]Member, 0, len(t.All))
	for p, m := range t.All {
		ours := p.Region == t.Self.Region && p.Instance == t.Self.Instance
		known := m.ReceivedAt != 0 || m.Gossip.State != "" || !ours && (m.Store.Alive || m.LeftUntil != 0)
		if known && p != t.Self {
			others = append(others, *m)
		}
	}
	slices.SortFunc(others, func(a, b Member) int { return Compare(a.Process, b.Process) })
	return others
}

// Siblings is the live processes of our region, as the store that they share shows them.
func (t *Table) Siblings() []quota.Process {
	return t.processes(func(m *Member) bool { return m.Store.Alive })
}

// Received is the other processes that are received at now.
func (t *Table) Received(now time.Duration) []quota.Process {
	return t.processes(func(m *Member) bool { return !m.Silent(now) })
}

func (t *Table) processes(of func(*Member) bool) (all []quota.Process) {
	for _, m := range t.Others() {
		if of(&m) {
			all = append(all, m.Process)
		}
	}
	return all
}

// Compare orders processes by region, instance and boot.
func Compare(a, b quota.Process) int {
	return cmp.Or(strings.Compare(a.Region, b.Region), strings.Compare(a.Instance, b.Instance), cmp.Compare(a.Boot, b.Boot))
}

// Never is the age, in ms, of what did not happen.
const Never = -1

// RegionRow is one region as this process sees it: a row of GET /v1/regions. Ages and spans
// are in milliseconds.
type RegionRow struct {
	Region      string       `json:"name"`
	Weight      int64        `json:"weight"`
	Self        bool         `json:"self"`
	State       State        `json:"state"`
	InUse       bool         `json:"counted"`                // it is in M: its share is pooled with ours
	Reason      quota.Reason `json:"reason,omitempty"`       // why it is treated as unreachable
	Text        string       `json:"detail,omitempty"`       // the same in words
	SinceMS     int64        `json:"since_ms"`               // how long it has been in this state
	HeardMS     int64        `json:"heard_ms"`               // age of its newest message, of its process silent longest
	AckedMS     int64        `json:"acked_ms"`               // of the newest message of ours that it acknowledged, the same
	RemainingMS int64        `json:"remaining_ms,omitempty"` // until it is counted on again, if it stays good
	Processes   []ProcessRow `json:"processes,omitempty"`
}

// ProcessRow is one process of a region, in our own region a sibling.
type ProcessRow struct {
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
	Newest   uint64   `json:"newest"`
	Complete uint64   `json:"complete"`
	RTTMS    float64  `json:"rtt_ms"`
	Synced   bool     `json:"digested"`           // a whole snapshot of its usage arrived
	Newcomer bool     `json:"newcomer,omitempty"` // a healthy region is evaluated without it
	Gossip   Word     `json:"gossip"`             // "unknown" where gossip does not know it
	Members  []string `json:"members"`            // the regions that it would count on
}
