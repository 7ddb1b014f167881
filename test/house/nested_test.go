package house_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryModuleIsTested: ./... ends where another go.mod lies, so a module that
// the Makefile does not name would be tested and checked by nobody.
func TestEveryModuleIsTested(t *testing.T) {
	line := regexp.MustCompile(`(?m)^MODULES := (.*)$`).FindStringSubmatch(read(t, "Makefile"))
	if line == nil {
		t.Fatal("the Makefile has no line MODULES := …")
	}
	named := strings.Fields(line[1])
	var found []string
	for _, f := range textFiles(t) {
		if path.Base(f.path) == "go.mod" {
			found = append(found, path.Dir(f.path))
		}
	}
	slices.Sort(named)
	slices.Sort(found)
	if !slices.Equal(named, found) {
		t.Errorf("the Makefile's MODULES are %q, go.mod lies in %q", named, found)
	}
}

// TestMiddlewareNeedsNothing: who imports it for one handler gets one package.
func TestMiddlewareNeedsNothing(t *testing.T) {
	for _, word := range []string{"require", "replace"} {
		if strings.Contains(read(t, "middleware/go.mod"), word) {
			t.Errorf("middleware/go.mod has a %s; the package is of the standard library only", word)
		}
	}
	// With a replace, go install …/cmd/regiond@latest would refuse the main module.
	if strings.Contains(read(t, "go.mod"), "replace") {
		t.Error("go.mod has a replace; only a module that nobody imports may")
	}
}
