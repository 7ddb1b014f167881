package region

import (
	"fmt"
	"strings"
)

// unknownField says what was meant, or at least what there is.
func unknownField(key string, known []string) string {
	if near := nearestWord(key, known); near != "" {
		return fmt.Sprintf("unknown field %q; did you mean %s?", clip(key), near)
	}
	return fmt.Sprintf("unknown field %q; known here: %s", clip(key), strings.Join(known, ", "))
}

// nearestWord is the known word with the fewest edits to the key, "" when more
// than a third of the key would have to change.
func nearestWord(key string, known []string) string {
	const longest = 63 // no field is longer, so a longer key resembles none
	if len(key) > longest {
		return ""
	}
	best, word := max(1, len(key)/3)+1, ""
	for _, k := range known {
		if d := edits(key, k); d < best {
			best, word = d, k
		}
	}
	return word
}

// edits is the Levenshtein distance of two short strings in bytes: the fewest
// insertions, deletions and replacements that make one of the other. It keeps
// one row of the table, whose cell j is the distance to b[:j].
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
