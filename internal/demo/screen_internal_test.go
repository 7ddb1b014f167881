package demo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// terminal is the plainest one that knows what Screen uses: lines, up, and clear
// to the end of the line.
type terminal struct {
	lines       [][]byte
	row, column int
}

func (m *terminal) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		for len(m.lines) <= m.row {
			m.lines = append(m.lines, nil)
		}
		var up int
		switch {
		case bytes.HasPrefix(b, []byte("\x1b[K")):
			m.lines[m.row] = m.lines[m.row][:min(m.column, len(m.lines[m.row]))]
			b = b[3:]
		case b[0] == '\x1b':
			if _, err := fmt.Sscanf(string(b), "\x1b[%dA", &up); err != nil {
				return 0, err
			}
			m.row -= up
			b = b[bytes.IndexByte(b, 'A')+1:]
		case b[0] == '\n':
			m.row, m.column, b = m.row+1, 0, b[1:]
		default:
			if m.column == len(m.lines[m.row]) {
				m.lines[m.row] = append(m.lines[m.row], 0)
			}
			m.lines[m.row][m.column] = b[0]
			m.column, b = m.column+1, b[1:]
		}
	}
	return n, nil
}

func (m *terminal) String() string {
	return string(bytes.TrimRight(bytes.Join(m.lines, []byte("\n")), "\n"))
}

// TestScreenInPlace: after any number of texts with equally many lines, the last
// one stands there, below what stood there before, and nothing else.
func TestScreenInPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &terminal{}
		fmt.Fprint(m, "opening\n")
		s := &Screen{out: m, size: func() (width, height int) { return Width, 24 }}
		lines := rapid.IntRange(1, 12).Draw(t, "lines")
		var last string
		for range rapid.IntRange(1, 5).Draw(t, "texts") {
			last = ""
			for range lines {
				last += rapid.StringMatching(`[a-z]{1,30}`).Draw(t, "line") + "\n"
			}
			s.Show(last)
		}
		if got, want := m.String()+"\n", "opening\n"+last; got != want {
			t.Fatalf("the terminal shows\n%s\nwant\n%s", got, want)
		}
	})
}

// TestScreenAppends: a pipe, a file and a small window get one text below the other.
func TestScreenAppends(t *testing.T) {
	for _, size := range [][2]int{{0, 0}, {Width - 1, 24}, {Width, 2}} {
		var out strings.Builder
		s := &Screen{out: &out, size: func() (width, height int) { return size[0], size[1] }}
		s.Show("a\nb\n")
		s.Show("c\nd\n")
		if got := out.String(); got != "a\nb\n\nc\nd\n" {
			t.Errorf("in %v: %q", size, got)
		}
	}
	var out strings.Builder
	NewScreen(&out).Show("a\n")
	if out.String() != "a\n" {
		t.Errorf("%q", out.String())
	}
}
