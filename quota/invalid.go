package quota

import (
	"fmt"
	"strings"
)

// FieldError is one thing wrong with a request or a configuration: where, and the rule.
type FieldError struct {
	Pointer string // RFC 6901, relative to what was validated: "/limits/0/per"
	Detail  string // what the rule is and what was found
}

type fieldErrors []FieldError

func (ms *fieldErrors) add(pointer, format string, args ...any) {
	*ms = append(*ms, FieldError{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
}

func (ms *fieldErrors) addAll(prefix string, others []FieldError) {
	for _, m := range others {
		*ms = append(*ms, FieldError{Pointer: prefix + m.Pointer, Detail: m.Detail})
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
// charged. All errors are listed, not only the first.
type Invalid struct {
	Fault  Fault
	Fields []FieldError
	Limit  string // of FaultCost: the name of the limit that the cost is above
}

// Error implements error in one line.
func (e *Invalid) Error() string {
	parts := make([]string, len(e.Fields))
	for i, m := range e.Fields {
		parts[i] = m.Detail
		if m.Pointer != "" {
			parts[i] = strings.TrimPrefix(m.Pointer, "/") + ": " + m.Detail
		}
	}
	return strings.Join(parts, "; ")
}
