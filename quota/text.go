package quota

import (
	"fmt"
	"slices"
	"strings"
)

// The names of enumeration values in YAML, JSON and metrics. UnmarshalText
// accepts exactly these; its error lists them.
var (
	algorithmNames   = []string{"sliding_log", "sliding_window", "gcra"}
	scopeNames       = []string{"region", "global"}
	failModeNames    = []string{"share", "open", "closed"}
	overloadNames    = []string{"shed", "open"}
	enforcementNames = []string{"enforce", "observe"}
)

func enumName(names []string, i uint8) string {
	if int(i) >= len(names) {
		return fmt.Sprintf("invalid(%d)", i)
	}
	return names[i]
}

// parseName sets an enumeration value by its name; on an error to its zero value.
func parseName[E ~uint8](e *E, names []string, text []byte) error {
	i := slices.Index(names, string(text))
	*e = E(max(i, 0))
	if i < 0 {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(names, ", "))
	}
	return nil
}

// String returns the name used in topology.yaml.
func (a Algorithm) String() string { return enumName(algorithmNames, uint8(a)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Algorithm) UnmarshalText(text []byte) error { return parseName(a, algorithmNames, text) }

// String returns the name used in topology.yaml.
func (s Scope) String() string { return enumName(scopeNames, uint8(s)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Scope) UnmarshalText(text []byte) error { return parseName(s, scopeNames, text) }

// String returns the name used in topology.yaml.
func (m FailMode) String() string { return enumName(failModeNames, uint8(m)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *FailMode) UnmarshalText(text []byte) error { return parseName(m, failModeNames, text) }

// String returns the name used in topology.yaml.
func (m OverloadMode) String() string { return enumName(overloadNames, uint8(m)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *OverloadMode) UnmarshalText(text []byte) error { return parseName(m, overloadNames, text) }

// String returns the name used in topology.yaml and in answers.
func (e Enforcement) String() string { return enumName(enforcementNames, uint8(e)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Enforcement) UnmarshalText(text []byte) error { return parseName(e, enforcementNames, text) }
