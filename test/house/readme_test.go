package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// firstScreen is how many lines somebody sees before scrolling.
const firstScreen = 40

func TestReadmeBeginsWithWhatToType(t *testing.T) {
	lines := strings.Split(read(t, "README.md"), "\n")
	screen := strings.Join(lines[:min(firstScreen, len(lines))], "\n")
	for _, want := range []string{
		"go run ./cmd/regiond serve",
		`curl -s -d '{"tenant":"acme"}' 127.0.0.1:8080/v1/check`,
		"make test",
	} {
		if !strings.Contains(screen, want) {
			t.Errorf("the first %d lines of README.md do not say %q", firstScreen, want)
		}
	}
}

var (
	// A target is named in backticks, or begins a line of a code block.
	namedTarget   = regexp.MustCompile("(?m)(?:`|^)make ([a-z][a-z-]*)")
	definedTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	relativeLink  = regexp.MustCompile(`\]\(([^):#\s]+)(?:#[^)]*)?\)`)
)

func TestReadmeNamesTargetsThatExist(t *testing.T) {
	defined := map[string]bool{}
	for _, m := range definedTarget.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		defined[m[1]] = true
	}
	named := namedTarget.FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(named) == 0 {
		t.Error("README.md names no make target")
	}
	for _, m := range named {
		if !defined[m[1]] {
			t.Errorf("README.md says `make %s`, the Makefile has no such target", m[1])
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, f := range textFiles(t) {
		if !strings.HasSuffix(f.path, ".md") {
			continue
		}
		for _, m := range relativeLink.FindAllStringSubmatch(f.text, -1) {
			target := filepath.Join(root, filepath.Dir(f.path), m[1])
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", f.path, m[1])
			}
		}
	}
}

var (
	changelogSection = regexp.MustCompile(`^## (Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\))$`)
	changelogEntry   = regexp.MustCompile(`^- \[(FEATURE|ENHANCEMENT|CHANGE|BUGFIX|SECURITY)\] \S`)
)

func TestChangelogIsTagged(t *testing.T) {
	sections := 0
	for i, line := range strings.Split(read(t, "CHANGELOG.md"), "\n") {
		switch {
		case strings.HasPrefix(line, "## "):
			sections++
			if !changelogSection.MatchString(line) || sections == 1 && line != "## Unreleased" {
				t.Errorf("CHANGELOG.md:%d: %q: sections are Unreleased, first, and then versions with their day, 1.2.3 (2026-01-31)", i+1, line)
			}
		case strings.HasPrefix(line, "- ") && !changelogEntry.MatchString(line):
			t.Errorf("CHANGELOG.md:%d: an entry begins with [FEATURE], [ENHANCEMENT], [CHANGE], [BUGFIX] or [SECURITY]", i+1)
		}
	}
	if sections == 0 {
		t.Error("CHANGELOG.md has no section")
	}
}
