package region

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Place is where in a file something stands.
type Place struct {
	Line   int `json:"line"`   // from 1
	Column int `json:"column"` // from 1, in characters
	// Pointer is RFC 6901: "/policies/0/limits/1/per", "" for the whole file.
	// When it names something absent, line and column are those of the nearest
	// thing around it that is there.
	Pointer string `json:"pointer"`
}

// Mistake is one thing that the schema forbids.
type Mistake struct {
	Place
	Detail string `json:"detail"` // what the rule is and what was found
}

// Warning is one thing that is allowed and probably not meant.
type Warning struct {
	Place
	Detail string `json:"detail"`
}

// Invalid is the error for a file that is no topology: the first mistake of
// shape alone, or else every mistake of value in the order of the file.
type Invalid struct {
	File     string    `json:"file"`
	Mistakes []Mistake `json:"mistakes"` // at least one
}

// Error implements error with one line for each mistake:
// "topology.yaml:12:9: /regions/0/weight: must be …".
func (e *Invalid) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.at(e.File) + m.Detail
	}
	return strings.Join(lines, "\n")
}

// Text gives the warning as the one line that Invalid gives to a mistake.
func (w Warning) Text(file string) string { return w.at(file) + w.Detail }

func (p Place) at(file string) string {
	if p.Pointer == "" {
		return fmt.Sprintf("%s:%d:%d: ", file, p.Line, p.Column)
	}
	return fmt.Sprintf("%s:%d:%d: %s: ", file, p.Line, p.Column, visible(p.Pointer))
}

func (p Place) lineColumn() string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

// compare orders places as a reader meets them.
func (p Place) compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Line, o.Line), cmp.Compare(p.Column, o.Column), cmp.Compare(p.Pointer, o.Pointer))
}

func sortMistakes(ms []Mistake) {
	slices.SortStableFunc(ms, func(a, b Mistake) int { return a.compare(b.Place) })
}

func sortWarnings(ws []Warning) {
	slices.SortStableFunc(ws, func(a, b Warning) int { return a.compare(b.Place) })
}

// visible keeps a key with line breaks in it from breaking a line of the log.
func visible(s string) string {
	quoted := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// clip keeps a message about something huge small, without cutting a character.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// under appends one segment to a pointer.
func under(pointer, segment string) string {
	return pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(segment)
}

// item appends an index to a pointer.
func item(pointer string, i int) string { return pointer + "/" + strconv.Itoa(i) }
