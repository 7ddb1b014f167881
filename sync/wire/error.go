package wire

import (
	"errors"
	"fmt"

	"github.com/regiond/regiond/quota"
)

// Reason says in one word why a message was refused. The words are stable: they
// are the label of a metric.
type Reason string

// The reasons, each with what usually sends such a message.
const (
	// ReasonMalformed: it is not an envelope of the expected kind. Somebody else
	// publishes on our subjects, or the bytes were damaged.
	ReasonMalformed Reason = "malformed"
	// ReasonVersion: it is of another version. Half of the processes were upgraded.
	ReasonVersion Reason = "version"
	// ReasonSize: it has more bytes, totals, groups or other parts than it may.
	ReasonSize Reason = "size"
	// ReasonRange: a number or a name is not one that a regiond writes.
	ReasonRange Reason = "range"
	// ReasonAuthor: it names another region than its subject as its author.
	ReasonAuthor Reason = "author"
)

// Reasons returns all reasons, for a metric that shows zeros.
func Reasons() []Reason {
	return []Reason{ReasonMalformed, ReasonVersion, ReasonSize, ReasonRange, ReasonAuthor}
}

// Error is a message that was refused. Nothing of it was used.
type Error struct {
	Reason Reason
	Err    error // where in the message and what is wrong, for a log
}

func (e *Error) Error() string {
	return fmt.Sprintf("message refused (%s): %v", e.Reason, e.Err)
}

func (e *Error) Unwrap() error {
	return e.Err
}

// CheckAuthor refuses a message whose author is not of the region that its
// subject names. NATS permissions guard the subject, nothing else guards the body.
func CheckAuthor(subject string, from quota.Process) error {
	if from.Region == subject {
		return nil
	}
	return refuse(ReasonAuthor, "the subject is of region %q, from.region is %q", clip(subject), clip(from.Region))
}

// refuse returns an *Error. It is declared as error so that a nil one is nil.
func refuse(r Reason, format string, args ...any) error {
	return &Error{Reason: r, Err: fmt.Errorf(format, args...)}
}

// in says where in the message a refusal was met.
func in(where string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err // nil
	}
	return &Error{Reason: e.Reason, Err: fmt.Errorf("%s: %w", where, e.Err)}
}

// clip keeps a log line about something huge small.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
