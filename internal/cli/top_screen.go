package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/regiond/regiond/quota"
)

// topScreen is what `top` shows on a terminal, and what keys have chosen. It does no I/O.
type topScreen struct {
	query  quota.TopQuery
	sort   int    // of topSorts
	filter string // that a row shows somewhere
	typing bool   // keys go into filter

	report *quota.TopReport // nil until the first answer
	err    error            // of the newest one
	at     time.Time        // of the newest one
}

// topSorts are the orders that rows can have; the first is the answer's own.
var topSorts = [...]struct {
	name    string
	compare func(a, b *quota.TopRow) int
}{
	{"at least", func(a, b *quota.TopRow) int { return cmp.Compare(b.AtLeast, a.AtLeast) }},
	{"at most", func(a, b *quota.TopRow) int { return cmp.Compare(b.AtMost, a.AtMost) }},
	{"tenant", func(a, b *quota.TopRow) int { return strings.Compare(a.Tenant, b.Tenant) }},
	{"policy", func(a, b *quota.TopRow) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Limit, b.Limit))
	}},
}

// Keys that are no letters.
const (
	keyInterrupt = 3 // Ctrl-C
	keyBackspace = 8
	keyEnter     = '\r'
	keyEscape    = 27
	keyDelete    = 127 // what most terminals send for backspace
)

// press acts on what was typed at once. ask is true when another answer is needed.
func (s *topScreen) press(keys []byte) (quit, ask bool) {
	if len(keys) > 1 && keys[0] == keyEscape {
		return false, false // an arrow or a function key
	}
	for _, key := range keys {
		switch {
		case key == keyInterrupt:
			return true, false
		case s.typing:
			s.edit(key)
			continue
		}
		switch key {
		case 'q':
			return true, false
		case 'b':
			s.query.By, ask = 1-s.query.By, true
		case 'w':
			i := slices.Index(quota.TopWindows[:], s.query.Window)
			s.query.Window, ask = quota.TopWindows[(i+1)%len(quota.TopWindows)], true
		case 'g':
			s.query.Scope, ask = quota.ScopeGlobal-s.query.Scope, true
		case 's':
			s.sort = (s.sort + 1) % len(topSorts)
		case '/':
			s.typing, s.filter = true, ""
		case keyEscape:
			s.filter = ""
		}
	}
	return false, ask
}

// edit takes a key of the filter.
func (s *topScreen) edit(key byte) {
	switch {
	case key == keyEnter || key == '\n':
		s.typing = false
	case key == keyEscape:
		s.typing, s.filter = false, ""
	case key == keyBackspace || key == keyDelete:
		s.filter = s.filter[:max(0, len(s.filter)-1)]
	case key >= ' ' && key <= '~' && len(s.filter) < widestName:
		s.filter += string(key)
	}
}

// rows are those that pass the filter, in order.
func (s *topScreen) rows() []quota.TopRow {
	rows := slices.DeleteFunc(slices.Clone(s.report.Rows), func(r quota.TopRow) bool {
		shown := strings.Join([]string{r.Tenant, r.Policy, r.Limit, partitionText(r.Partition)}, " ")
		return !strings.Contains(strings.ToLower(shown), strings.ToLower(s.filter))
	})
	slices.SortStableFunc(rows, func(a, b quota.TopRow) int { return topSorts[s.sort].compare(&a, &b) })
	return rows
}

// draw is the screen, of at most height lines of at most width columns.
func (s *topScreen) draw(width, height int) string {
	title := "regiond top"
	var lines []string
	switch {
	case s.err != nil:
		lines = append(lines, title+"  "+s.at.Format(time.TimeOnly), "")
		for rest := printable(s.err.Error()); rest != ""; {
			n := min(len(rest), max(1, width))
			lines, rest = append(lines, rest[:n]), rest[n:]
		}
		lines = append(lines, "It is asked again.")
	case s.report == nil:
		lines = append(lines, title, "", "Asking regiond.")
	default:
		lines = append(lines, title+"  "+s.at.Format(time.TimeOnly)+"  "+topSummary(s.report))
		lines = append(lines, topNotes(s.report)...)
		lines = append(lines, "")
		lines = append(lines, topLines(s.rows(), s.report.Total)...)
	}
	lines = lines[:min(len(lines), max(0, height-1))]
	filter := "/ filter"
	if s.typing || s.filter != "" {
		filter = "/" + s.filter
	}
	if s.typing {
		filter += "_ (Enter keeps it, Esc ends it)"
	}
	lines = append(lines, fmt.Sprintf("q quit  b %v  w %s  g %v  s by %s  %s",
		s.query.By, map[time.Duration]string{time.Minute: "1m", time.Hour: "1h"}[s.query.Window], s.query.Scope, topSorts[s.sort].name, filter))
	for i, line := range lines {
		lines[i] = line[:min(len(line), width)] // all of it is ASCII
	}
	return strings.Join(lines, "\n")
}

// The terminal's other screen, without a cursor, and back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// show draws a screen over the one before.
func show(out io.Writer, text string) {
	fmt.Fprint(out, "\x1b[H"+strings.ReplaceAll(text, "\n", "\x1b[K\r\n")+"\x1b[K\x1b[J")
}

// live draws on a terminal until a key or a signal ends it. It takes all rows, since it filters
// and sorts them itself.
func (o *topOptions) live(ctx context.Context, out *os.File) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	before, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	fmt.Fprint(out, enterScreen)
	defer func() {
		fmt.Fprint(out, leaveScreen)
		_ = term.Restore(int(os.Stdin.Fd()), before) // nothing else could be done about it
	}()
	keys := make(chan []byte)
	go readKeys(ctx, os.Stdin, keys) // a read cannot be interrupted: it ends with the process
	s := &topScreen{query: o.query}
	s.query.Rows = quota.MaxTopRows
	ticker := time.NewTicker(o.every)
	defer ticker.Stop()
	for ask := true; ; {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil {
			return fmt.Errorf("size of the terminal: %w", err)
		}
		if s.report == nil && s.err == nil {
			show(out, s.draw(width, height))
		}
		if ask {
			_, v, err := o.rank(ctx, s.query)
			s.report, s.err, s.at = &v, err, time.Now()
		}
		show(out, s.draw(width, height))
		quit := false
		select {
		case <-ctx.Done():
			return nil
		case typed, open := <-keys:
			if !open {
				return nil // its input ended
			}
			quit, ask = s.press(typed)
		case <-ticker.C:
			ask = true
		}
		if quit {
			return nil
		}
	}
}

// readKeys passes on what is typed, as it comes, and closes keys at its end.
func readKeys(ctx context.Context, in io.Reader, keys chan<- []byte) {
	defer close(keys)
	for {
		typed := make([]byte, 64)
		n, err := in.Read(typed)
		if err != nil {
			return
		}
		select {
		case keys <- typed[:n]:
		case <-ctx.Done():
			return
		}
	}
}
