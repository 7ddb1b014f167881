// Package house_test holds what the repository promises about itself: which
// modules it is built of and under which licences, what its files may not say,
// how long they may be, and that the README can be followed word by word. It
// reads files and asks the go command; it starts no part of the program.
package house_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the folder of go.mod, seen from this package's.
const root = "../.."

// file is one text file of the repository.
type file struct {
	path string // from the root, with slashes
	text string
}

// textFiles returns every text file that is ours: also one that is not committed
// yet, none that make has built, none that is binary.
func textFiles(t *testing.T) []file {
	t.Helper()
	var files []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == ".git" || name == ".tools" || name == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files = append(files, file{path: filepath.ToSlash(rel), text: string(data)})
		return nil
	})
	if err != nil {
		t.Fatalf("read the repository: %v", err)
	}
	if len(files) < 10 {
		t.Fatalf("%d text files below %s: this is not the repository", len(files), root)
	}
	return files
}

// read returns one file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// ours reports whether a file is code that we write by hand: golden files and
// fuzz corpora are data, and generated code answers to its generator.
func (f file) ours(suffixes ...string) bool {
	if strings.Contains(f.path, "testdata/") || strings.HasSuffix(f.path, ".pb.go") {
		return false
	}
	for _, s := range suffixes {
		if strings.HasSuffix(f.path, s) {
			return true
		}
	}
	return false
}
