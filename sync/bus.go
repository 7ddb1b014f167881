package sync

import "errors"

// ErrTooLarge means that a message has more than Limit bytes.
var ErrTooLarge = errors.New("message is larger than the bus takes")

// Bus carries messages between processes at most once: it may lose, repeat and
// delay them, and nothing here depends on more. Implementations are safe for
// concurrent use.
type Bus interface {
	// Publish hands a message over and returns at once, whatever state the
	// connection is in. nil means only that the bus accepted it; after an error it is
	// lost. data is not kept. Nearly all messages have no header.
	Publish(subject string, data []byte, header ...Field) error
	// Limit is how many bytes a message may have at present, its header included; 0: not known.
	Limit() int
	// Messages delivers what others publish on the Subscriptions of our region, those of one
	// publisher in its order. It is bounded:
	// what does not fit is dropped. Our own messages may come back.
	Messages() <-chan Message
	// Gaps has something in it after a connection was made: what either side published
	// before it may be lost. It holds at most one.
	Gaps() <-chan struct{}
}

// Message is what a Bus delivers. Data and Header belong to the receiver.
type Message struct {
	Subject string
	Data    []byte
	Header  []Field // nil for nearly all
}

// Field is one line of a message's header. No decision depends on it: a bus may lose it,
// and change the case of its name.
type Field struct{ Name, Value string }

// A header within these bounds arrives as it was sent; one beyond them is dropped whole,
// since it is none of ours.
const (
	MaxFields     = 4
	MaxFieldBytes = 1024 // of a field's name and value
)

// Subjects. A tenant is never part of one; the next word is the author's region, or for a
// snapshot request the recipient's. SubjectLoan goes on with the author's region and the
// recipient's, or EveryRegion.
const (
	SubjectUsage     = "rl.v1.usage."
	SubjectHeartbeat = "rl.v1.heartbeat."
	SubjectSnapshot  = "rl.v1.snapshot."
	SubjectLoan      = "rl.v1.loan."
	SubjectReset     = "rl.v1.reset."
	SubjectTop       = "rl.v1.top."

	EveryRegion = "_all" // no region has this name
)

// Subscriptions are the subjects that a process of a region reads; "*" is any one word.
func Subscriptions(region string) []string {
	return []string{
		SubjectUsage + "*", SubjectHeartbeat + "*", SubjectSnapshot + region,
		SubjectLoan + "*." + EveryRegion, SubjectLoan + "*." + region, SubjectReset + "*", SubjectTop + "*",
	}
}
