package region

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// dumbEdits is the definition of the distance, with no table to get wrong.
func dumbEdits(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	if a[0] == b[0] {
		return dumbEdits(a[1:], b[1:])
	}
	return 1 + min(dumbEdits(a[1:], b), dumbEdits(a, b[1:]), dumbEdits(a[1:], b[1:]))
}

func TestEditsIsItsDefinition(t *testing.T) {
	word := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		if got, want := edits(a, b), dumbEdits(a, b); got != want {
			t.Fatalf("edits(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}

func TestNearestWord(t *testing.T) {
	known := []string{"algorithm", "burst", "by", "name", "per", "scope", "units", "when"}
	if !slices.IsSorted(known) {
		t.Fatal("the words of a mapping come sorted")
	}
	for _, row := range []struct{ key, want string }{
		{"unit", "units"},
		{"Units", "units"},
		{"algorith", "algorithm"},
		{"blgorithn", "algorithm"},
		{"window", ""}, // another word, not a slip
		{"b", "by"},
		{"", ""},
		{string(make([]byte, 1000)), ""},
	} {
		if got := nearestWord(row.key, known); got != row.want {
			t.Errorf("nearestWord(%.20q) = %q, want %q", row.key, got, row.want)
		}
	}
}
