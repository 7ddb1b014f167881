package quota

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The names of enumeration values in YAML, JSON and metrics. UnmarshalText
// accepts exactly these; its error lists them.
var (
	algorithmNames   = []string{"sliding_log", "sliding_window", "gcra", "concurrent", "calendar"}
	countsNames      = []string{"requests", "tokens"}
	scopeNames       = []string{"region", "global"}
	failModeNames    = []string{"share", "open", "closed"}
	overloadNames    = []string{"shed", "open"}
	enforcementNames = []string{"enforce", "observe"}
	topNames         = []string{"denied", "used"}
)

// Clip keeps a message about something huge small: 80 bytes of it.
func Clip(s string) string { return ClipTo(s, 80) }

// ClipTo keeps the first bytes of a text, without cutting a character.
func ClipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// EnumName is the name of the value i of an enumeration, for String.
func EnumName(names []string, i uint8) string {
	if int(i) >= len(names) {
		return fmt.Sprintf("invalid(%d)", i)
	}
	return names[i]
}

// ParseName sets an enumeration value by its name; on an error to its zero value.
func ParseName[E ~uint8](e *E, names []string, text []byte) error {
	i := slices.Index(names, string(text))
	*e = E(max(i, 0))
	if i < 0 {
		return fmt.Errorf("%q is not one of %s", Clip(string(text)), strings.Join(names, ", "))
	}
	return nil
}

// String returns the name used in topology.yaml.
func (a Algorithm) String() string { return EnumName(algorithmNames, uint8(a)) }

// UnmarshalText implements encoding.TextUnmarshaler. The last two are kinds of limit, not algorithms to choose.
func (a *Algorithm) UnmarshalText(text []byte) error {
	return ParseName(a, algorithmNames[:Concurrent], text)
}

// String returns the name used in topology.yaml.
func (c Counts) String() string { return EnumName(countsNames, uint8(c)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Counts) UnmarshalText(text []byte) error { return ParseName(c, countsNames, text) }

// String returns the name used in topology.yaml.
func (s Scope) String() string { return EnumName(scopeNames, uint8(s)) }

// MarshalText returns String.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Scope) UnmarshalText(text []byte) error { return ParseName(s, scopeNames, text) }

// String returns the name used in topology.yaml.
func (m FailMode) String() string { return EnumName(failModeNames, uint8(m)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *FailMode) UnmarshalText(text []byte) error { return ParseName(m, failModeNames, text) }

// String returns the name used in topology.yaml.
func (m OverloadMode) String() string { return EnumName(overloadNames, uint8(m)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *OverloadMode) UnmarshalText(text []byte) error { return ParseName(m, overloadNames, text) }

// String returns the name used in topology.yaml and in answers.
func (e Enforcement) String() string { return EnumName(enforcementNames, uint8(e)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Enforcement) UnmarshalText(text []byte) error { return ParseName(e, enforcementNames, text) }

// String returns the name used in queries and answers.
func (b TopBy) String() string { return EnumName(topNames, uint8(b)) }

// MarshalText returns String.
func (b TopBy) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *TopBy) UnmarshalText(text []byte) error { return ParseName(b, topNames, text) }

// FieldError is one thing wrong with a request or a configuration: where, and the rule.
type FieldError struct {
	Pointer string // RFC 6901, relative to what was validated: "/limits/0/per"
	Detail  string // what the rule is and what was found
}

// FieldErrors collects what is wrong with a value.
type FieldErrors []FieldError

// Add adds an error.
func (ms *FieldErrors) Add(pointer, format string, args ...any) {
	*ms = append(*ms, FieldError{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
}

// When adds one if something is bad.
func (ms *FieldErrors) When(bad bool, pointer, format string, args ...any) {
	if bad {
		ms.Add(pointer, format, args...)
	}
}

// Check adds err, nil for none.
func (ms *FieldErrors) Check(pointer string, err error) { ms.When(err != nil, pointer, "%v", err) }

// Between holds a number to a range.
func (ms *FieldErrors) Between(pointer string, n, least, most int64) {
	if n < least || n > most {
		ms.Add(pointer, "must be between %d and %d, is %d", least, most, n)
	}
}

// Below adds those of a part of the value, which a pointer names.
func (ms *FieldErrors) Below(pointer string, of []FieldError) {
	for _, m := range of {
		*ms = append(*ms, FieldError{Pointer: pointer + m.Pointer, Detail: m.Detail})
	}
}

// Item appends an index to a pointer.
func Item(pointer string, i int) string { return pointer + "/" + strconv.Itoa(i) }

// Under appends a name to a pointer (RFC 6901).
func Under(pointer, name string) string {
	return pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

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
	// FaultUnknown is a reservation that this region never made for the caller.
	FaultUnknown
	// FaultOver is a reservation that is over, of which nothing is known any more.
	FaultOver
	// FaultNoHolds is a reservation under a policy that takes none.
	FaultNoHolds
)

// Invalid is the error for a request that cannot be decided. Nothing was
// charged. All errors are listed, not only the first.
type Invalid struct {
	Fault  Fault
	Fields []FieldError
	Limit  *Limit // of FaultCost: the one that the cost is above, of policy Policy
	Policy string
	// Observed is whether that policy only observes the tenant.
	Observed bool
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
