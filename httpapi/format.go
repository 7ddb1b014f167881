package httpapi

import (
	"fmt"
	"strings"
)

// The words of topology.yaml for each enumeration.
var (
	formatWords = []string{"draft-11", "triplet", "x-ratelimit", "off"}
	xResetWords = []string{"delta", "epoch"}
)

// String returns the word used in topology.yaml.
func (f Format) String() string { return word(formatWords, uint8(f)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Format) UnmarshalText(text []byte) error {
	v, err := parseWord(formatWords, text)
	*f = Format(v)
	return err
}

// String returns the word used in topology.yaml.
func (x XReset) String() string { return word(xResetWords, uint8(x)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (x *XReset) UnmarshalText(text []byte) error {
	v, err := parseWord(xResetWords, text)
	*x = XReset(v)
	return err
}

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
