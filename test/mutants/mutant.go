package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one small mistake, and the tests that have to notice it.
type mutant struct {
	name   string // a-z, 0-9 and -
	breaks string // the promise that does not hold any more
	file   string // from the root, with slashes; Go, or Lua that Go embeds
	// old stands in the file exactly once, and becomes what the mistake makes of it.
	old, becomes string
	killers      []proof
}

// proof is a test, or one of its subtests ("TestCeiling/share").
type proof struct {
	dir  string // of the package, from the root
	test string
}

func (p proof) String() string { return p.dir + " " + p.test }

// by names tests of one package.
func by(dir string, tests ...string) (proofs []proof) {
	for _, test := range tests {
		proofs = append(proofs, proof{dir, test})
	}
	return proofs
}

// table is all mutants, room by room.
func table() []mutant {
	return slices.Concat(quotaMutants(), scriptMutants(), limiterMutants(), ledgerMutants(), meshMutants(), viewMutants(), hallMutants())
}

// dirs are the packages whose tests have to notice the mutant, each once.
func (m *mutant) dirs() (dirs []string) {
	for _, p := range m.killers {
		if !slices.Contains(dirs, p.dir) {
			dirs = append(dirs, p.dir)
		}
	}
	return dirs
}

// apply returns the file with the mistake in it. The error says what to do in the
// table.
func (m *mutant) apply(root string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return nil, fmt.Errorf("mutant %s: its file: %w; name the file in which that code lives now", m.name, err)
	}
	text := string(data)
	if m.old == m.becomes {
		return nil, fmt.Errorf("mutant %s changes nothing: old and becomes are the same text", m.name)
	}
	switch n := strings.Count(text, m.old); {
	case m.old == "" || n == 0:
		return nil, fmt.Errorf("mutant %s: its old text does not stand in %s; the code has changed, so make the same mistake in what it is now:\n%s",
			m.name, m.file, m.old)
	case n > 1:
		return nil, fmt.Errorf("mutant %s: its old text stands %d times in %s, in lines %s; take in a neighbouring line that tells them apart:\n%s",
			m.name, n, m.file, lines(text, m.old), m.old)
	}
	return []byte(strings.Replace(text, m.old, m.becomes, 1)), nil
}

// lines lists where a text begins in another, as "3, 17".
func lines(text, part string) string {
	var at []string
	for from := 0; ; {
		i := strings.Index(text[from:], part)
		if i < 0 {
			return strings.Join(at, ", ")
		}
		at = append(at, fmt.Sprint(1+strings.Count(text[:from+i], "\n")))
		from += i + len(part)
	}
}

// choose returns the mutants of these names, in the table's order; all for none.
func choose(all []mutant, names []string) ([]mutant, error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.name == name }) {
			return nil, fmt.Errorf("there is no mutant %q; go run ./test/mutants -list names all %d", name, len(all))
		}
	}
	var chosen []mutant
	for _, m := range all {
		if slices.Contains(names, m.name) {
			chosen = append(chosen, m)
		}
	}
	return chosen, nil
}
