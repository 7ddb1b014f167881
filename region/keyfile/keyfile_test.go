package keyfile_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/region/keyfile"
)

func key(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func line(b byte, n int) string { return base64.StdEncoding.EncodeToString(key(b, n)) + "\n" }

func TestRead(t *testing.T) {
	one, two, three := key(1, 32), key(2, 32), key(3, 16)
	for _, row := range []struct {
		name, content string
		want          *keyfile.Keys
		says          string // instead
	}{
		{"one", line(1, 32), &keyfile.Keys{Shared: [][]byte{one}, Partitions: one}, ""},
		{"of 24 bytes", line(1, 24), &keyfile.Keys{Shared: [][]byte{key(1, 24)}, Partitions: key(1, 24)}, ""},
		{"of 16 bytes, as Windows writes it", " " + line(3, 16) + "\r\n", &keyfile.Keys{Shared: [][]byte{three}, Partitions: three}, ""},
		{"partitions of their own", line(1, 32) + "partitions " + line(3, 16), &keyfile.Keys{Shared: [][]byte{one}, Partitions: three}, ""},
		{"two", line(1, 32) + line(2, 32) + "partitions " + line(1, 32), &keyfile.Keys{Shared: [][]byte{one, two}, Partitions: one}, ""},
		{"in another order", "partitions  " + line(1, 32) + line(2, 32) + line(1, 32), &keyfile.Keys{Shared: [][]byte{two, one}, Partitions: one}, ""},
		{"two, and no partitions", line(1, 32) + line(2, 32), nil, `add the line "partitions KEY"`},
		{"three", line(1, 32) + line(2, 32) + line(3, 16) + "partitions " + line(1, 32), nil, "line 3: a third key"},
		{"partitions twice", line(1, 32) + "partitions " + line(1, 32) + "partitions " + line(1, 32), nil, "line 3: there is a second key of partitions"},
		{"partitions alone", "partitions " + line(1, 32), nil, "no key but that of partitions"},
		{"15 bytes", line(1, 15), nil, "line 1: a key is one line of base64 of 16, 24 or 32 bytes; make one with: openssl rand -base64 32"},
		{"of zero bytes", line(0, 32), nil, "line 1: a key of zero bytes is no secret"},
		{"of zero bytes, for partitions", line(1, 32) + "partitions " + line(0, 16), nil, "line 2: a key of zero bytes"},
		{"nothing", "\n", nil, "openssl rand -base64 32"},
		{"an empty line between", line(1, 32) + "\n" + line(2, 32), nil, "line 2: a key is"},
		{"not base64", strings.Repeat("g!", 32), nil, "line 1: a key is"},
		{"of partitions, not base64", line(1, 32) + "partitions ?", nil, "line 2: a key is"},
	} {
		file := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(file, []byte(row.content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := keyfile.Read(file)
		if diff := cmp.Diff(row.want, got); diff != "" || (err == nil) != (row.says == "") {
			t.Errorf("%s: %v (-want +got):\n%s", row.name, err, diff)
		}
		if err != nil && (!strings.Contains(err.Error(), row.says) || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "AQEB")) {
			t.Errorf("%s: %q, want %q, the file and nothing of a key", row.name, err, row.says)
		}
	}
	if _, err := keyfile.Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that does not exist was read")
	}
}
