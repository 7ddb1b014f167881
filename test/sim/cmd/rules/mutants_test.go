package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMutantsApply: the list is up to date.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants() {
		source, err := os.ReadFile(filepath.Join("../../../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.apply(string(source)); err != nil {
			t.Error(err)
		}
	}
}
