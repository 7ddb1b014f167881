package chaos_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// README.md names every scenario, and no test that there is not: here or, in
// backquotes, elsewhere.
func TestREADMENamesTheScenarios(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	ours, others := testsIn(t, "*_test.go"), testsIn(t, "../../limiter/*_test.go")
	for name := range testsIn(t, "../../cmd/regiond/*_test.go") {
		others[name] = true
	}
	named := map[string]bool{}
	for _, found := range regexp.MustCompile("`?\\bTest[A-Z][A-Za-z]*\\b").FindAllString(string(page), -1) {
		name, elsewhere := strings.CutPrefix(found, "`")
		named[name] = true
		switch {
		case name == "TestName": // of the command that runs one
		case elsewhere && !others[name]:
			t.Errorf("README.md names %s, which is no test of limiter or cmd/regiond", name)
		case !elsewhere && !ours[name]:
			t.Errorf("README.md names %s, which is no test here", name)
		}
	}
	for name := range ours {
		if !named[name] && name != "TestMain" && name != t.Name() {
			t.Errorf("README.md does not name %s", name)
		}
	}
}

// testsIn are the tests of some files, whatever their build tags.
func testsIn(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	tests := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				tests[f.Name.Name] = true
			}
		}
	}
	return tests
}
