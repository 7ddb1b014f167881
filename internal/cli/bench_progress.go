package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/regiond/regiond/internal/load"
)

// progressLine tells on a terminal, in one line that is written anew, how far a
// bench has come. Anywhere else it says nothing. It belongs to one goroutine at a
// time.
type progressLine struct {
	out   io.Writer // nil where there is no terminal
	all   time.Duration
	drawn bool
}

func newProgressLine(w io.Writer, all time.Duration) *progressLine {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progressLine{out: w, all: all}
	}
	return &progressLine{}
}

// barWidth leaves room for the rest within 80 columns.
const barWidth = 16

func (l *progressLine) show(p load.Progress) {
	if l.out == nil {
		return
	}
	l.drawn = true
	fmt.Fprint(l.out, "\r"+l.text(p)+"\x1b[K")
}

// text is one line:
//
//	[######          ]  5s of 12s  4998 answered, 120 denied, 0 failed, 3 waiting
func (l *progressLine) text(p load.Progress) string {
	full := min(barWidth, int(barWidth*p.Passed/l.all))
	text := fmt.Sprintf("[%-*s] %3.0fs of %v  %d answered, %d denied, %d failed, %d waiting",
		barWidth, strings.Repeat("#", full), p.Passed.Seconds(), l.all, p.Answered, p.Denied, p.Failed, p.InFlight)
	if p.Unsent > 0 {
		text += fmt.Sprintf(", %d unsent", p.Unsent)
	}
	if p.Warming {
		text += ", warming up"
	}
	return text
}

// clear takes the line away: the result follows.
func (l *progressLine) clear() {
	if l.drawn {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
}
