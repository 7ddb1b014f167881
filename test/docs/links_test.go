package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	code    = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// deadLinks are the links of a page to files or headings of the repository that do not exist.
func deadLinks(t *testing.T, page, text string) (dead []string) {
	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, "x"), -1) {
		path, fragment, _ := strings.Cut(m[1], "#")
		if strings.Contains(path, "://") || strings.HasPrefix(path, "mailto:") {
			continue
		}
		target, of := page, text
		if path != "" {
			target = filepath.Join(filepath.Dir(page), path)
			data, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr != nil || err != nil && !info.IsDir() {
				dead = append(dead, m[1])
				continue
			}
			of = string(data)
		}
		var anchors []string
		for _, h := range heading.FindAllStringSubmatch(regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(of, ""), -1) {
			anchors = append(anchors, anchor(link.ReplaceAllString(h[1], "")))
		}
		if fragment != "" && strings.HasSuffix(target, ".md") && !slices.Contains(anchors, fragment) {
			dead = append(dead, m[1])
		}
	}
	return dead
}

func TestLinksLead(t *testing.T) {
	for _, pattern := range pages {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range found {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range deadLinks(t, page, string(text)) {
				t.Errorf("%s: %s leads nowhere", strings.TrimPrefix(page, "../../"), d)
			}
		}
	}
	if got := deadLinks(t, "../../docs/x.md", "# A b\n[1](#a-b) [2](#c) [3](api.md#calls) [4](api.md#none) [5](none.md)"); !slices.Equal(got, []string{"#c", "api.md#none", "none.md"}) {
		t.Errorf("found %q", got)
	}
}
