package house_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// module is one row of THIRD_PARTY.md, or what should be one.
type module struct {
	path, version, licence string
	use                    string // "linked" into cmd/regiond, or "test" only
	dir                    string // where its source lies; empty for a row that was read
}

func (m module) row(purpose string) string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", m.path, m.version, m.licence, m.use, purpose)
}

// needed asks the go command which modules the packages and their tests are
// built of on this system.
func needed(t *testing.T) map[string]module {
	t.Helper()
	modules := depsOf(t, "test", "-test", "./...")
	maps.Copy(modules, depsOf(t, "linked", "./cmd/regiond"))
	for path, m := range modules {
		m.licence = licenceOf(t, m.dir)
		modules[path] = m
	}
	return modules
}

func depsOf(t *testing.T, use string, args ...string) map[string]module {
	t.Helper()
	// -e: a package that does not build is told of by its own tests.
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-deps", "-json=Module"}, args...)...)
	cmd.Dir = root
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the modules: %v\n%s", err, &complaint)
	}
	modules := map[string]module{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return modules
		} else if err != nil {
			t.Fatalf("read what go list says: %v", err)
		}
		if m := p.Module; m != nil && !m.Main { // a standard package has no module
			modules[m.Path] = module{path: m.Path, version: m.Version, use: use, dir: m.Dir}
		}
	}
}

var tableRow = regexp.MustCompile(`(?m)^\| (\S+\.\S+/\S+) \| (v\S+) \| ([^|]+) \| (linked|test) \| ([^|]+) \|$`)

// listed reads the table of THIRD_PARTY.md. Lines that look like a row and are
// none are mistakes, not text.
func listed(t *testing.T) map[string]module {
	t.Helper()
	text := read(t, "THIRD_PARTY.md")
	modules := map[string]module{}
	previous := ""
	for _, m := range tableRow.FindAllStringSubmatch(text, -1) {
		if _, twice := modules[m[1]]; twice || m[1] < previous {
			t.Errorf("THIRD_PARTY.md: %s stands twice or out of order; rows are sorted by module", m[1])
		}
		previous = m[1]
		modules[m[1]] = module{path: m[1], version: m[2], licence: m[3], use: m[4]}
	}
	if rows := strings.Count(text, "\n| ") - 1; rows != len(modules) { // the head is no row
		t.Errorf("THIRD_PARTY.md has %d rows, of which %d have the form %q",
			rows, len(modules), module{"example.com/x", "v1.2.3", "MIT", "linked", ""}.row("what for"))
	}
	return modules
}

func TestThirdPartyIsComplete(t *testing.T) {
	need, have := needed(t), listed(t)
	for _, path := range slices.Sorted(maps.Keys(need)) {
		want := need[path]
		if want.licence == "" {
			t.Errorf("%s %s has no licence file that is known here: read it, and teach spdx its sentence if it may be shipped", path, want.version)
		}
		got, ok := have[path]
		want.dir = ""
		switch {
		case !ok:
			t.Errorf("THIRD_PARTY.md misses a module; add, in its place, the line\n%s", want.row("<what for>"))
		case got != want:
			t.Errorf("THIRD_PARTY.md is out of date; change the line of %s to begin\n%s", path, want.row("…"))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(have)) {
		if _, ok := need[path]; !ok {
			t.Errorf("THIRD_PARTY.md lists %s, which no package and no test uses any more; remove its line", path)
		}
	}
}

// TestNoticesArePassedOn: the Apache License (4d) wants the NOTICE file of what
// is redistributed carried along. NOTICE says so under the name of the module.
func TestNoticesArePassedOn(t *testing.T) {
	notice := read(t, "NOTICE")
	for path, m := range depsOf(t, "linked", "./cmd/regiond") {
		name := regexp.MustCompile(`/v\d+$`).ReplaceAllString(path, "")
		if hasNotice(t, m.dir) && !strings.Contains(notice, "\n"+name+"\n") {
			t.Errorf("%s has a NOTICE file and NOTICE has no paragraph %q", path, name)
		}
	}
}
