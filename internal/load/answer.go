package load

// Answer is what came of one request.
type Answer struct {
	Allowed   bool
	WouldDeny bool // allowed because the policy only observes
	Basis     string
	Mode      string
	Reason    string // "" unless the answer is a degraded one

	Fault  string // why there is no decision: one of a few words, "" when there is one
	Detail string // of a fault, for a person
}

// Faults, besides "status 400" and its like. A few, so that they can be counted.
const (
	FaultTimeout = "timeout"            // no answer within the timeout
	FaultRefused = "connection refused" // nobody listens
	FaultBroken  = "connection broken"  // it ended before the answer did
	FaultNetwork = "network"            // any other trouble of the connection
	FaultForeign = "not an answer of regiond"
)
