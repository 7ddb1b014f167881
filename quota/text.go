package quota

import (
	"fmt"
	"strings"
)

// The names of enumeration values in YAML, JSON and metrics. UnmarshalText
// accepts exactly these; its error lists them.
var (
	algorithmNames   = []string{"sliding_log", "sliding_window", "gcra"}
	scopeNames       = []string{"region", "global"}
	failModeNames    = []string{"share", "open", "closed"}
	enforcementNames = []string{"enforce", "observe"}
)

func enumName(names []string, i uint8) string {
	if int(i) >= len(names) {
		return fmt.Sprintf("invalid(%d)", i)
	}
	return names[i]
}

func parseName(names []string, text []byte) (uint8, error) {
	for i, w := range names {
		if w == string(text) {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not one of %s", text, strings.Join(names, ", "))
}

// String returns the name used in topology.yaml.
func (a Algorithm) String() string { return enumName(algorithmNames, uint8(a)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Algorithm) UnmarshalText(text []byte) error {
	v, err := parseName(algorithmNames, text)
	*a = Algorithm(v)
	return err
}

// String returns the name used in topology.yaml.
func (s Scope) String() string { return enumName(scopeNames, uint8(s)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Scope) UnmarshalText(text []byte) error {
	v, err := parseName(scopeNames, text)
	*s = Scope(v)
	return err
}

// String returns the name used in topology.yaml.
func (m FailMode) String() string { return enumName(failModeNames, uint8(m)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *FailMode) UnmarshalText(text []byte) error {
	v, err := parseName(failModeNames, text)
	*m = FailMode(v)
	return err
}

// String returns the name used in topology.yaml and in answers.
func (e Enforcement) String() string { return enumName(enforcementNames, uint8(e)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Enforcement) UnmarshalText(text []byte) error {
	v, err := parseName(enforcementNames, text)
	*e = Enforcement(v)
	return err
}
