package house_test

import (
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rule is something that no file may say. Patterns are put together from pieces,
// so that this file keeps the rules too.
type rule struct {
	pattern *regexp.Regexp
	only    []string // suffixes of the files it is about; none means all
	why     string
}

func rules() []rule {
	hosts := [][]string{
		{"proxy", "golang", "org"},
		{"sum", "golang", "org"},
		{"goproxy", "(io|cn)"},
		{"registry", "npmjs", "org"},
		{"(registry\\.)?yarnpkg", "com"},
		{"pypi", "org"},
		{"files", "pythonhosted", "org"},
		{"crates", "io"},
		{"rubygems", "org"},
		{"repo\\d?", "maven", "(apache\\.)?org"},
	}
	rs := []rule{
		{
			pattern: regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`),
			why:     "finish it, or say in the CHANGELOG that it is not there yet",
		},
		{
			pattern: regexp.MustCompile(`(Errorf|errors\.New)\("[^"]*\bfail` + `ed to\b`),
			only:    []string{".go"},
			why:     `say what was attempted: "open store: %w"`,
		},
	}
	for _, labels := range hosts {
		rs = append(rs, rule{
			pattern: regexp.MustCompile(`\b` + strings.Join(labels, `\.`) + `\b`),
			why:     "which registry serves a package is the reader's setting, not ours",
		})
	}
	return rs
}

func (r rule) about(f file) bool {
	return len(r.only) == 0 || f.ours(r.only...)
}

// broken returns the lines of a text that break a rule.
func (r rule) broken(text string) (lines []int) {
	for i, line := range strings.Split(text, "\n") {
		if r.pattern.MatchString(line) {
			lines = append(lines, i+1)
		}
	}
	return lines
}

func TestNoFileSaysWhatItMustNot(t *testing.T) {
	for _, f := range textFiles(t) {
		for _, r := range rules() {
			if !r.about(f) {
				continue
			}
			for _, line := range r.broken(f.text) {
				t.Errorf("%s:%d says %s: %s", f.path, line, r.pattern, r.why)
			}
		}
	}
}

// TestRulesBite holds the rules against what they are for, and against what
// looks like it.
func TestRulesBite(t *testing.T) {
	for text, want := range map[string]int{
		"GOPROXY=https://proxy." + "golang.org,direct":    1,
		"see crates" + ".io/crates/x":                     1,
		"repo1.maven" + ".org":                            1,
		"// TO" + "DO: later":                             1,
		`fmt.Errorf("fail` + `ed to open: %w", err)`:      1,
		`errors.New("open: fail` + `ed to lock")`:         1,
		"mktemp -d build.XXXXXX":                          0,
		"golang.org/x/sync, pgregory.net/rapid":           0,
		"the two that failed are counted, to the last":    0,
		"proxy" + "Xgolang" + "Xorg is a word of its own": 0,
	} {
		broken := 0
		for _, r := range rules() {
			broken += len(r.broken(text))
		}
		if broken != want {
			t.Errorf("%q breaks %d rules, want %d", text, broken, want)
		}
	}
}

// longerFor are files that may be longer than maxLines, each with its reason.
// A table or a state machine that is one piece is a reason; growth is not.
var longerFor = map[string]string{}

// maxLines is where a file has a second idea in it.
const maxLines = 400

func TestFilesAreOfOneIdea(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range textFiles(t) {
		if !f.ours(".go", ".lua") {
			continue
		}
		lines := strings.Count(f.text, "\n")
		_, excused := longerFor[f.path]
		seen[f.path] = true
		switch {
		case lines > maxLines && !excused:
			t.Errorf("%s has %d lines, at most %d: find the second idea in it and give it a file, or add it to longerFor with the reason that it is one piece", f.path, lines, maxLines)
		case lines <= maxLines && excused:
			t.Errorf("%s has %d lines and needs no excuse: remove it from longerFor", f.path, lines)
		}
	}
	for p := range longerFor {
		if !seen[p] {
			t.Errorf("longerFor excuses %s, which is not there", p)
		}
	}
}

func TestPackagesSayWhatTheyPromise(t *testing.T) {
	said := map[string]bool{} // folder → whether one of its files has a package comment
	for _, f := range textFiles(t) {
		if !f.ours(".go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, f.path), f.text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		dir := path.Dir(f.path)
		said[dir] = said[dir] || parsed.Doc != nil
	}
	for dir, ok := range said {
		if !ok {
			t.Errorf("%s has no package comment: add doc.go, which says what the package does, what it does not, and who may call it", dir)
		}
	}
}
