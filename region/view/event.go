package view

import (
	"time"

	"github.com/regiond/regiond/quota"
)

// EventKind says what an Event is about.
type EventKind uint8

const (
	// ModeChanged: From and To are modes, as under fail mode share. The first call of
	// Observe tells the first mode, from "".
	ModeChanged EventKind = iota
	// MembersChanged: another M is in use, in the same mode; From and To list its
	// regions.
	MembersChanged
	// RegionChanged: From and To are states of Region.
	RegionChanged
	// Frozen: this process stood still. Whoever holds what peers said must forget that
	// it is complete and ask again; the mesh calls it Distrust.
	Frozen
	// TopologyChanged: From and To are "same" or "differ".
	TopologyChanged
)

// String returns the word used in logs and metrics.
func (k EventKind) String() string {
	return word([]string{"mode", "members", "region", "process_paused", "topology"}, uint8(k))
}

// Event is a change that is worth a log line and a count. It is a value.
type Event struct {
	At       time.Duration // monotonic
	Kind     EventKind
	Region   string // of RegionChanged
	From, To string
	Reason   quota.Reason // why we are blind; of RegionChanged, why that region is not counted on
	Text     string       // the same for a reader, with names and ages
}
