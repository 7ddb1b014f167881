package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/regiond/regiond/internal/base/files"
)

// TestRead: what a name stands for is read to its end, or refused, and never waited for without one.
func TestRead(t *testing.T) {
	const most = 16 << 20
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	fifo := func() error { return syscall.Mkfifo(at("fifo"), 0o600) }
	sized := func(n int64) error {
		if err := os.WriteFile(at("sized"), []byte("begin"), 0o600); err != nil {
			return err
		}
		return os.Truncate(at("sized"), n)
	}
	for _, row := range []struct {
		what, name string
		make       func() error
		bytes      int
		refused    string
	}{
		{"a file", "sized", func() error { return sized(5) }, 5, ""},
		{"an empty one", "sized", func() error { return sized(0) }, 0, ""},
		{"the largest", "sized", func() error { return sized(most) }, most, ""},
		{"a byte more", "sized", func() error { return sized(most + 1) }, 0, "it has more than 16777216 bytes"},
		{"a link to it", "link", func() error { return os.Symlink(at("sized"), at("link")) }, 0, "link: it has more than 16777216 bytes"},
		{"no file", "none", nil, 0, "no such file"},
		{"a directory", ".", nil, 0, "is a directory"},
		{"a device without end", "zero", func() error { return os.Symlink("/dev/zero", at("zero")) }, 0, "zero: it has more than 16777216 bytes"},
		{"a FIFO without a writer", "fifo", fifo, 0, "fifo: it is a FIFO, and nothing was written into it"},
	} {
		if row.make != nil {
			if err := row.make(); err != nil {
				t.Fatal(err)
			}
		}
		content, err := files.Read(at(row.name))
		switch {
		case row.refused != "":
			if err == nil || !strings.Contains(err.Error(), row.refused) {
				t.Errorf("%s: %v, want %q", row.what, err, row.refused)
			}
		case err != nil || len(content) != row.bytes:
			t.Errorf("%s: %d bytes, %v; want %d", row.what, len(content), err, row.bytes)
		}
	}
}

// TestReadFIFO: of a FIFO all is read, also what is written after Read has begun, and in parts.
func TestReadFIFO(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(name, os.O_RDWR, 0) // a reader need not be there yet
	if err != nil {
		t.Fatal(err)
	}
	const part, parts = 10_000, 30 // more than a pipe holds
	ended := make(chan error, 1)
	go func() {
		var err error
		for range parts {
			if err == nil {
				_, err = w.Write(make([]byte, part))
			}
		}
		ended <- err
		_ = w.Close()
	}()
	content, err := files.Read(name)
	if err != nil || len(content) != part*parts {
		t.Errorf("%d bytes, %v; want %d", len(content), err, part*parts)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
