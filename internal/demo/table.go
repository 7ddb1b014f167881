package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/regiond/regiond/quota"
)

// Width is the most columns that a line of the demo has, for commands that are
// not longer than these lines leave room for.
const Width = 80

// Row is what one region knows.
type Row struct {
	Region  string
	Allowed int64 // requests of all tenants since the row before
	Denied  int64
	Used    []int64           // units of Busy that each region has used, the row's own exactly
	Ceiling int64             // that the region may hold
	Strict  int64             // units of Strict that the region has used
	Bound   *quota.BoundTerms // of Strict: the region's share, and what it lent and borrowed; nil: not known
	Mode    string            // of the policy share
	Reason  string            // "" in mode global
	Peers   []Peer
}

// Peer is another region, as seen from a row's.
type Peer struct {
	Region string
	State  string
	Heard  time.Duration // how long ago; negative: never
}

// Banner is printed above the table: what this is and what to try. program
// is how regiond is called.
func Banner(program string, port int) string {
	return fmt.Sprintf(`regiond demo: three regions in one process on this machine. Ctrl-C ends it.
See it, cut regions off and heal them in a browser:
  http://localhost:%d/
Or type in another terminal. What is used up in Europe is used up in the US:
  curl -s -d '{"tenant":"%s","cost":%d}' localhost:%d/v1/check
  curl -s -d '{"tenant":"%s"}' localhost:%d/v1/check
Cut Europe off, see what changes below, and heal it:
  %s
  %s

`, port+AdminOffset, Acme, acmeUnits, port, Acme, port+1, commandLine(program, "cut", "eu-west", port), commandLine(program, "heal", "eu-west", port))
}

// commandLine is a command line that reaches a demo at that port.
func commandLine(program, verb, name string, port int) string {
	line := program + " demo " + verb + " " + name
	if port != DefaultPort {
		line += fmt.Sprintf(" --port %d", port)
	}
	return line
}

// Table is what the regions know now. It has the same number of lines each time,
// none longer than Width.
//
//	            last second   tenant demo used in the last 10s, of 100
//	REGION    allowed denied   eu-west   us-east  ap-south  CEILING  MODE
//	eu-west         6      0        50        33        17       50  global
//	  us-east fresh, ap-south fresh
//	A row is what its region knows; it may itself use up to CEILING.
//	each of its own  together      most   eu-west   us-east  ap-south
//	demo                  103       112        52        34        17  estimated
//	demo-strict           100       100        50        33        17  max_overshoot: 0%
func Table(rows []Row, worst Worst, off []string, quiet bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "            last second   tenant %s used in the last %v, of %d\n", Busy, BusyWindow, BusyUnits)
	fmt.Fprintf(&b, "%-9s allowed denied", "REGION")
	for i := range rows {
		fmt.Fprintf(&b, " %9s", rows[i].Region)
	}
	b.WriteString("  CEILING  MODE\n")
	for i := range rows {
		rows[i].write(&b)
	}
	b.WriteString("A row is what its region knows; it may itself use up to CEILING.\n")
	fmt.Fprintf(&b, "%-15s %9s %9s", "each of its own", "together", "most")
	for i := range rows {
		fmt.Fprintf(&b, " %9s", rows[i].Region)
	}
	estimated, strict := together(rows)
	b.WriteString("\n")
	compare(&b, Busy, estimated, worst.Estimated, "estimated")
	compare(&b, Strict, strict, worst.Strict, "max_overshoot: 0%")
	cut := "Nothing is cut."
	if len(off) > 0 {
		cut = "Cut off: " + list(off) + "."
	}
	if quiet {
		cut += " No traffic is made (--quiet)."
	}
	return b.String() + cut + "\n"
}

// Worst is the most that all regions together have used of a tenant's limit in any window
// that was looked at.
type Worst struct {
	Estimated int64 `json:"estimated"`
	Strict    int64 `json:"strict"`
}

// add takes in what the regions use now.
func (w *Worst) add(rows []Row) {
	estimated, strict := together(rows)
	w.Estimated, w.Strict = max(w.Estimated, sum(estimated)), max(w.Strict, sum(strict))
}

// together is what each region has used, of Busy and of Strict.
func together(rows []Row) (estimated, strict []int64) {
	for i := range rows {
		estimated, strict = append(estimated, rows[i].Used[i]), append(strict, rows[i].Strict)
	}
	return estimated, strict
}

func sum(used []int64) (n int64) {
	for _, units := range used {
		n += units
	}
	return n
}

func compare(b *strings.Builder, tenant string, used []int64, most int64, how string) {
	fmt.Fprintf(b, "%-15s %9d %9d", tenant, sum(used), most)
	for _, units := range used {
		fmt.Fprintf(b, " %9d", units)
	}
	fmt.Fprintf(b, "  %s\n", how)
}

func (r *Row) write(b *strings.Builder) {
	fmt.Fprintf(b, "%-9s %7d %6d", r.Region, r.Allowed, r.Denied)
	for _, units := range r.Used {
		fmt.Fprintf(b, " %9d", units)
	}
	fmt.Fprintf(b, " %8d  %s\n", r.Ceiling, r.Mode)
	var peers []string
	for _, p := range r.Peers {
		peers = append(peers, p.text())
	}
	detail := strings.Join(peers, ", ")
	if r.Reason != "" {
		detail = r.Reason + ": " + detail
	}
	fmt.Fprintf(b, "  %s\n", detail)
}

// text is a peer's state, with the age of its last word when that is the point.
func (p *Peer) text() string {
	if p.State == "fresh" || p.Heard < time.Second {
		return p.Region + " " + p.State
	}
	return fmt.Sprintf("%s %s %v", p.Region, p.State, p.Heard.Round(time.Second))
}

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
