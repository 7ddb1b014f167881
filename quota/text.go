package quota

import (
	"fmt"
	"strings"
)

// The words of YAML, JSON and metrics for each enumeration. UnmarshalText
// accepts exactly these; its error lists them.
var (
	algorithmWords   = []string{"sliding_log", "sliding_window", "gcra"}
	scopeWords       = []string{"region", "global"}
	failModeWords    = []string{"share", "open", "closed"}
	enforcementWords = []string{"enforce", "observe"}
)

func word(words []string, i uint8) string {
	if int(i) >= len(words) {
		return fmt.Sprintf("invalid(%d)", i)
	}
	return words[i]
}

func parseWord(words []string, text []byte) (uint8, error) {
	for i, w := range words {
		if w == string(text) {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not one of %s", text, strings.Join(words, ", "))
}

// String returns the word used in topology.yaml.
func (a Algorithm) String() string { return word(algorithmWords, uint8(a)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Algorithm) UnmarshalText(text []byte) error {
	v, err := parseWord(algorithmWords, text)
	*a = Algorithm(v)
	return err
}

// String returns the word used in topology.yaml.
func (s Scope) String() string { return word(scopeWords, uint8(s)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Scope) UnmarshalText(text []byte) error {
	v, err := parseWord(scopeWords, text)
	*s = Scope(v)
	return err
}

// String returns the word used in topology.yaml.
func (m FailMode) String() string { return word(failModeWords, uint8(m)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *FailMode) UnmarshalText(text []byte) error {
	v, err := parseWord(failModeWords, text)
	*m = FailMode(v)
	return err
}

// String returns the word used in topology.yaml and in answers.
func (e Enforcement) String() string { return word(enforcementWords, uint8(e)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Enforcement) UnmarshalText(text []byte) error {
	v, err := parseWord(enforcementWords, text)
	*e = Enforcement(v)
	return err
}
