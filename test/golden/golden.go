// Package golden compares texts with files that a test keeps in its testdata.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Updating reports whether golden files are written anew, for other forms than Compare knows.
func Updating() bool { return *update }

// Compare fails where the text is not that of testdata/file. With -update it writes the file.
func Compare(t *testing.T, file, got string) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got, -update writes it anew):\n%s", file, diff)
	}
}
