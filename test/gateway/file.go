package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Edit changes a shipped file for a test. Its old text must stand there as often
// as the edit says, so that what is tested remains what is shipped.
type Edit struct {
	Old, New string
	Times    int // 0 means once
}

// Apply makes the edits in a text; name is the file's, for the message when an
// edit does not fit any more.
func Apply(t *testing.T, name, text string, edits ...Edit) string {
	t.Helper()
	for _, e := range edits {
		if got, want := strings.Count(text, e.Old), max(e.Times, 1); got != want {
			t.Fatalf("%s says %q %d times, this test expects %d: change both together", name, e.Old, got, want)
		}
		text = strings.ReplaceAll(text, e.Old, e.New)
	}
	return text
}

// Render writes a shipped file into dir with the edits made, and returns its path.
func Render(t *testing.T, name, dir string, edits ...Edit) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(Apply(t, name, string(data), edits...)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
