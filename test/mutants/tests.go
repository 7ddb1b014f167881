package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// rapidPath is a library whose failing tests look for a smaller example and leave it
// behind in a file, unless told not to. A mutant's are not worth that.
const rapidPath = `"pgregory.net/rapid"`

// suite is what the test files of a package say.
type suite struct {
	tests map[string]bool
	rapid bool // they use it, and so their binary knows its flags
}

// readSuite reads the test files of a folder.
func readSuite(dir string) (suite, error) {
	s := suite{tests: map[string]bool{}}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return s, fmt.Errorf("look for tests in %s: %w", dir, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return s, fmt.Errorf("read tests: %w", err)
		}
		for _, i := range f.Imports {
			s.rapid = s.rapid || i.Path.Value == rapidPath
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && isTest(fn.Name.Name) {
				s.tests[fn.Name.Name] = true
			}
		}
	}
	return s, nil
}

// isTest reports whether a function is run by go test. That of a fuzz target runs its
// seeds.
func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz")
}

// has reports whether a test is there; whether its subtests are, only a run tells.
func (s *suite) has(test string) bool {
	name, _, _ := strings.Cut(test, "/")
	return s.tests[name]
}
