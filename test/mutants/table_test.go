package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the folder of go.mod, seen from this package's.
const root = "../.."

// TestTableFitsTheSource: code moves on, and a mutant that no longer stands in it, or
// names a test that is gone, would guard nothing.
func TestTableFitsTheSource(t *testing.T) {
	suites := map[string]suite{}
	for _, m := range table() {
		if _, err := m.apply(root); err != nil {
			t.Error(err)
		}
		if len(m.killers) == 0 {
			t.Errorf("mutant %s names no test that has to notice it", m.name)
		}
		for _, p := range m.killers {
			s, ok := suites[p.dir]
			if !ok {
				var err error
				if s, err = readSuite(filepath.Join(root, p.dir)); err != nil {
					t.Fatal(err)
				}
				suites[p.dir] = s
			}
			if !s.has(p.test) {
				t.Errorf("mutant %s: there is no %s; name the test that guards this now", m.name, p)
			}
		}
	}
}

// TestTableReadsWell: names are unique and can be typed, and each promise is one.
func TestTableReadsWell(t *testing.T) {
	name := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	seen, mistakes := map[string]bool{}, map[[3]string]string{}
	for _, m := range table() {
		if !name.MatchString(m.name) || seen[m.name] {
			t.Errorf("mutant %q: its name is of a-z, 0-9 and -, and stands once", m.name)
		}
		seen[m.name] = true
		if m.breaks == "" || strings.HasSuffix(m.breaks, ".") {
			t.Errorf("mutant %s breaks %q: say the promise, without a full stop", m.name, m.breaks)
		}
		mistake := [3]string{m.file, m.old, m.becomes}
		if other, twice := mistakes[mistake]; twice {
			t.Errorf("mutants %s and %s make the same mistake", m.name, other)
		}
		mistakes[mistake] = m.name
	}
	if len(seen) < 60 {
		t.Errorf("%d mutants are left of at least 60", len(seen))
	}
}

// What does not stand exactly once is refused, with where it stands and what to do.
func TestApplySaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a/b.go", "one\ntwo\none\n")
	for _, row := range []struct {
		m    mutant
		want string // what the file becomes, or what the error says
		ok   bool
	}{
		{mutant{name: "m", file: "a/b.go", old: "two", becomes: "three"}, "one\nthree\none\n", true},
		{mutant{name: "m", file: "a/b.go", old: "two\none", becomes: ""}, "one\n\n", true},
		{mutant{name: "m", file: "a/b.go", old: "one", becomes: "two"}, "stands 2 times in a/b.go, in lines 1, 3; take in a neighbouring line", false},
		{mutant{name: "m", file: "a/b.go", old: "four", becomes: "two"}, "does not stand in a/b.go; the code has changed", false},
		{mutant{name: "m", file: "a/b.go", old: "", becomes: "two"}, "does not stand in a/b.go", false},
		{mutant{name: "m", file: "a/b.go", old: "two", becomes: "two"}, "changes nothing", false},
		{mutant{name: "m", file: "a/c.go", old: "two", becomes: "one"}, "name the file in which that code lives now", false},
	} {
		got, err := row.m.apply(dir)
		if row.ok && (err != nil || string(got) != row.want) {
			t.Errorf("%q → %q: %q, %v", row.m.old, row.m.becomes, got, err)
		}
		if !row.ok && (err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "mutant m")) {
			t.Errorf("%q → %q: %v, want it to say %q", row.m.old, row.m.becomes, err, row.want)
		}
	}
}

func TestChoose(t *testing.T) {
	all := []mutant{{name: "a"}, {name: "b"}, {name: "c"}}
	if ms, err := choose(all, nil); err != nil || len(ms) != 3 {
		t.Errorf("without a name: %v, %v", ms, err)
	}
	if ms, err := choose(all, []string{"c", "a"}); err != nil || len(ms) != 2 || ms[0].name != "a" || ms[1].name != "c" {
		t.Errorf("c and a: %v, %v", ms, err)
	}
	if _, err := choose(all, []string{"a", "z"}); err == nil || !strings.Contains(err.Error(), `no mutant "z"`) {
		t.Errorf("a name that is not there: %v", err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
