package demo

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Screen shows a text that changes: in place on a terminal that is large enough,
// one below the other anywhere else. It belongs to one goroutine.
type Screen struct {
	out   io.Writer
	size  func() (width, height int) // 0, 0 when it is no terminal
	drawn int                        // lines that stand there
}

// NewScreen writes to out.
func NewScreen(out io.Writer) *Screen {
	return &Screen{out: out, size: func() (width, height int) {
		f, ok := out.(*os.File)
		if !ok {
			return 0, 0
		}
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0, 0
		}
		return width, height
	}}
}

// Show draws a text over the one before. On anything but a terminal an empty line
// stands between the two.
func (s *Screen) Show(text string) {
	lines := strings.Count(text, "\n")
	width, height := s.size()
	switch inPlace := width >= Width && height > lines; {
	case s.drawn > 0 && inPlace:
		// Up to the first line, then each line anew and the rest of it cleared.
		text = fmt.Sprintf("\x1b[%dA", s.drawn) + strings.ReplaceAll(text, "\n", "\x1b[K\n")
	case s.drawn > 0:
		text = "\n" + text
	}
	s.drawn = lines
	fmt.Fprint(s.out, text)
}
