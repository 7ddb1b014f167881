package demo

import (
	"strings"
	"testing"
)

// TestScreen: a large enough terminal shows one text over the other; a pipe, a file and a
// small window get one below the other.
func TestScreen(t *testing.T) {
	for _, row := range []struct {
		width, height int
		want          string
	}{
		{Width, 24, "a\nb\n\x1b[2Ac\x1b[K\nd\x1b[K\n"}, // up two lines, the rest of each cleared
		{0, 0, "a\nb\n\nc\nd\n"},
		{Width - 1, 24, "a\nb\n\nc\nd\n"},
		{Width, 2, "a\nb\n\nc\nd\n"},
	} {
		var out strings.Builder
		s := &Screen{out: &out, size: func() (width, height int) { return row.width, row.height }}
		s.Show("a\nb\n")
		s.Show("c\nd\n")
		if got := out.String(); got != row.want {
			t.Errorf("%d by %d: %q, want %q", row.width, row.height, got, row.want)
		}
	}
	var out strings.Builder
	NewScreen(&out).Show("a\n")
	if out.String() != "a\n" {
		t.Errorf("%q", out.String())
	}
}
