package faultproxy

import "strings"

// Kind is what happens instead of the reply. In each case the
// server has carried out the request.
type Kind uint8

const (
	// Swallow: the reply never comes, and neither does anything after it on that
	// connection, which stays open: TCP loses no bytes out of the middle of a
	// stream, so a lost reply is a path gone silent. Other connections go on.
	Swallow Kind = iota
	// Drop: the connection is closed instead.
	Drop
	// Cut: the connection is closed after the reply's first byte.
	Cut
	// Stray: an unsolicited reply comes first, and the true one after
	// it, so that the connection is one reply out of step.
	Stray
)

// strayReply is what Stray inserts.
const strayReply = "+stray\r\n"

// Fault is one thing that goes wrong, once.
type Fault struct {
	Kind Kind
	// Reply is which reply it strikes: the Reply-th that comes from the server
	// after Arm, over all connections, beginning with 1.
	Reply int
	// Scripts counts only replies to EVALSHA, by which decisions are made, errors like
	// NOSCRIPT among them, so that handshakes and probes do not shift the count.
	Scripts bool
}

// armed is a fault that has not struck yet.
type armed struct {
	fault  Fault
	seen   int           // replies counted so far
	struck chan struct{} // closed when the fault strikes
}

// strikes counts a reply to command and reports whether it is the one.
func (a *armed) strikes(command string) bool {
	if a.fault.Scripts && !isScript(command) {
		return false
	}
	a.seen++
	return a.seen == a.fault.Reply
}

func isScript(command string) bool {
	return strings.EqualFold(command, "EVALSHA")
}

// decides reports whether a command is part of a decision, which came after last: the script, TIME behind it, and
// what a client says first on a connection that it has kept ready.
func decides(command, last string) bool {
	switch strings.ToUpper(command) {
	case "EVALSHA", "HELLO", "CLIENT":
		return true
	case "TIME":
		return isScript(last)
	}
	return false
}

// Connections are some of those that a client has.
type Connections uint8

const (
	// All of them.
	All Connections = iota
	// Scripts are those that have carried EVALSHA.
	Scripts
	// Others are all, each from its next command on that decides nothing: one that has not
	// carried a decision yet may carry the next.
	Others
)
