package wire

import "fmt"

// Reason is why a message was refused, in one word. The words are stable: they are the
// label of a metric.
type Reason string

// The reasons, each with what usually sends such a message.
const (
	// ReasonMalformed: it is not an envelope of the expected kind. Somebody else
	// publishes on our subjects, or the bytes were damaged.
	ReasonMalformed Reason = "malformed"
	// ReasonVersion: it is of another version. Half of the processes were upgraded.
	ReasonVersion Reason = "version"
	// ReasonMAC: it was not written under this subject by a holder of our secret. Somebody
	// else publishes on our subjects, or processes have different keys.
	ReasonMAC Reason = "mac"
	// ReasonSize: it has more bytes, counters, groups or other parts than it may.
	ReasonSize Reason = "size"
	// ReasonRange: a number or a name is not one that a regiond writes.
	ReasonRange Reason = "range"
	// ReasonAuthor: its author is of another region than its subject.
	ReasonAuthor Reason = "author"
	// ReasonUnknownRegion: its region is not in the topology.
	ReasonUnknownRegion Reason = "unknown_region"
	// ReasonStale: its author left or was restarted, or it was repeated.
	ReasonStale Reason = "stale"
	// ReasonCrowded: its author would be one process more than can be known.
	ReasonCrowded Reason = "crowded"
	// ReasonRegions: its author is of one region more than can be known.
	ReasonRegions Reason = "regions"
)

// Reasons returns all reasons, for a metric that shows zeros.
func Reasons() []Reason {
	return []Reason{
		ReasonMalformed, ReasonVersion, ReasonMAC, ReasonSize, ReasonRange, ReasonAuthor,
		ReasonUnknownRegion, ReasonStale, ReasonCrowded, ReasonRegions,
	}
}

// Error is a message that was refused. Nothing of it was used.
type Error struct {
	Reason Reason
	Err    error // where in the message and what is wrong, for a log
}

func (e *Error) Error() string { return fmt.Sprintf("message refused (%s): %v", e.Reason, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Refuse returns an *Error.
func Refuse(r Reason, format string, args ...any) error {
	return &Error{Reason: r, Err: fmt.Errorf(format, args...)}
}
