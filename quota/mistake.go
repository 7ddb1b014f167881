package quota

import (
	"fmt"
	"strings"
)

// Mistake is one thing wrong with what somebody wrote: where, and the rule.
type Mistake struct {
	Pointer string // RFC 6901, relative to what was validated: "/limits/0/per"
	Detail  string // what the rule is and what was found
}

type mistakes []Mistake

func (ms *mistakes) add(pointer, format string, args ...any) {
	*ms = append(*ms, Mistake{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
}

func (ms *mistakes) addAll(prefix string, others []Mistake) {
	for _, m := range others {
		*ms = append(*ms, Mistake{Pointer: prefix + m.Pointer, Detail: m.Detail})
	}
}

func indexed(pointer string, i int) string { return fmt.Sprintf("%s/%d", pointer, i) }

// Fault classes what is wrong with a request, so that each edge (HTTP, forward
// auth, command line) can choose its own status for it.
type Fault uint8

const (
	// FaultInput is a request that breaks a rule: an unknown policy, a bad id.
	FaultInput Fault = iota
	// FaultCost is a cost above a limit's capacity: it can never succeed, so a
	// retry is never advised.
	FaultCost
	// FaultReuse is an Idempotency-Key that came with another request before.
	FaultReuse
)

// Invalid is the error for a request that cannot be decided. Nothing was
// charged. All mistakes are listed, not only the first.
type Invalid struct {
	Fault    Fault
	Mistakes []Mistake
}

// Error implements error in one line.
func (e *Invalid) Error() string {
	parts := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		parts[i] = m.Detail
		if m.Pointer != "" {
			parts[i] = strings.TrimPrefix(m.Pointer, "/") + ": " + m.Detail
		}
	}
	return strings.Join(parts, "; ")
}
