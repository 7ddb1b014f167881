// Package docs tests how the documentation is written.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/regiond/regiond/region"
)

// maxCell is how many words a cell of a table has: more is a paragraph, which belongs below the table.
const maxCell = 40

// unclear are phrases that readers had to read twice, each with what to write.
var unclear = []struct{ phrase, write string }{
	{`counted on\b`, "reachable, treated as unreachable"},
	{`that little is left`, "less than one unit is left"},
	{`which the others suspend`, "a sentence of its own"},
	{`for as long[.;]`, "the time, as in: for a window and a half"},
	{`what holds\b`, "what is in force"},
	{`is waited for`, "X waits for"},
	{`\b(is|are|was|were) told\b`, "receives, is informed, is configured"},
	{`\bhears?\b`, "receives"},
	{`\bwho asked\b`, "the caller"},
	{`\bwhoever asks\b`, "a caller"},
	{`who may reach what`, "what each listener accepts"},
	{`for so long that`, "until"},
	{`no use to retry`, "a retry does not help"},
	{`\b1 units\b`, "1 unit"},
	{`not by spelling`, "no bypass by spelling"},
}

// faults are the cells that are too long and the phrases that are unclear in a page, as line: what.
func faults(text string) (found []string) {
	code := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if code {
			continue
		}
		if strings.HasPrefix(line, "|") {
			for cell := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, ""), "|") {
				if n := len(strings.Fields(cell)); n > maxCell {
					found = append(found, fmt.Sprintf("%d: a cell has %d words, more than %d; say the rest below the table: %.60s…", i+1, n, maxCell, cell))
				}
			}
		}
		for _, u := range unclear {
			if m := regexp.MustCompile(`(?i)` + u.phrase).FindString(line); m != "" {
				found = append(found, fmt.Sprintf("%d: %q; write: %s", i+1, m, u.write))
			}
		}
	}
	return found
}

// pages are what users read.
var pages = []string{"*.md", "docs/*.md", "deploy/*.md", "examples/*/*.md", "test/*.md", "test/*/*.md"}

func TestPagesAreReadable(t *testing.T) {
	var files []string
	for _, pattern := range pages {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 25 {
		t.Fatalf("only %d pages", len(files))
	}
	for _, page := range files {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults(string(text)) {
			t.Errorf("%s:%s", strings.TrimPrefix(page, "../../"), f)
		}
	}
}

// The lint finds what it is for, and nothing in code.
func TestFaultsAreFound(t *testing.T) {
	long := "| a |" + strings.Repeat(" word", maxCell+1) + " |"
	for text, want := range map[string]int{
		long:                                  1,
		"```\n" + long + "\n```":              0,
		strings.Replace(long, "word ", "", 1): 0,
		"It is not counted on.":               1,
		"What was sent is waited for.":        1,
		"| a | 1 units |":                     1,
		"The region is treated as unreachable, 11 units.": 0,
	} {
		if got := faults(text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}

// The file with which docs/configure.md begins is a topology, and so is it with each limit that the page adds to it.
func TestGuideIsValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/configure.md")
	if err != nil {
		t.Fatal(err)
	}
	guide, _, _ := strings.Cut(string(text), "\n## Limits\n")
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(guide, -1)
	if len(blocks) < 8 {
		t.Fatalf("the guide has %d blocks", len(blocks))
	}
	limits := "    limits:\n"
	for _, b := range blocks {
		file, own := blocks[0][1], b[1]
		switch {
		case strings.HasPrefix(own, "      - "): // a limit, and what stands below the policies
			own, rest, _ := strings.Cut(own, "\nforward_auth:")
			file = strings.Replace(file, limits, limits+strings.Replace(own, "sustained", "added", 1)+"\n", 1)
			if rest != "" {
				file += "forward_auth:" + rest
			}
		case strings.HasPrefix(own, "    "): // of the policy
			file = strings.Replace(file, limits, own+limits, 1)
		}
		if _, _, err := region.Parse("guide.yaml", []byte(file)); err != nil {
			t.Errorf("%v\n%s", err, file)
		}
	}
}
