package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// Edit changes a shipped file for a test. The old text must be there as often as
// the edit says, so that what is tested remains what is shipped.
type Edit struct {
	Old, New string
	Times    int // 0 means once
}

// Apply makes the edits in the text of a file of that name.
func Apply(t *testing.T, name, text string, edits ...Edit) string {
	t.Helper()
	for _, e := range edits {
		if got, want := strings.Count(text, e.Old), max(e.Times, 1); got != want {
			t.Fatalf("%s has %q %d times, this test expects %d: change both together", name, e.Old, got, want)
		}
		text = strings.ReplaceAll(text, e.Old, e.New)
	}
	return text
}

// Read returns the text of a shipped file with the edits made.
func Read(t *testing.T, name string, edits ...Edit) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return Apply(t, name, string(data), edits...)
}

// ReadYAML decodes a shipped file with the edits made.
func ReadYAML(t *testing.T, name string, into any, edits ...Edit) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(Read(t, name, edits...)), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// Render writes a shipped file into dir with the edits made, and returns its path.
func Render(t *testing.T, name, dir string, edits ...Edit) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(Read(t, name, edits...)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
