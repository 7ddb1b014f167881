package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/regiond/regiond/quota"
)

// Width is the most columns that a line of the demo has, for commands that are
// not longer than these lines leave room for.
const Width = 80

// Banner is printed above the table: the address of the page, and three lines that say what this is and what to try.
// program is how regiond is called.
func Banner(program string, port int) string {
	return fmt.Sprintf(`http://localhost:%d/

Three regions in this process share one limit: %d units in %v. Watch it there.
Cut one off there, or with: %s
A table follows when all see each other, and after each cut. Ctrl-C ends it.

`, port+AdminOffset, BusyUnits, BusyWindow, commandLine(program, "cut", "eu-west", port))
}

// commandLine is a command line that reaches a demo at that port.
func commandLine(program, verb, name string, port int) string {
	line := program + " demo " + verb + " " + name
	if port != DefaultPort {
		line += fmt.Sprintf(" --port %d", port)
	}
	return line
}

// Table is what the regions know now.
//
//	REGION    MODE          USED  MAY USE  COUNTS ON
//	eu-west   global          50       50  us-east, ap-south
//	us-east   partitioned     33       33  nobody: peer_silent
//	Together 103 of 100 units in 10s for tenant demo, 112 at most so far;
//	100 for demo-strict (max_overshoot: 0%), 100 at most.
func Table(s *PageState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-9s %-11s %6s %8s  %s\n", "REGION", "MODE", "USED", "MAY USE", "COUNTS ON")
	var used, strict int64
	for i := range s.Regions {
		r := &s.Regions[i]
		used, strict = used+r.Used, strict+r.Strict
		seen := strings.Join(r.Fresh, ", ")
		if seen == "" {
			seen = "nobody"
		}
		if r.Reason != "" {
			seen += ": " + r.Reason
		}
		if b := r.Bound; b != nil && (b.Binds == "closed" || b.Binds == "burnt") {
			seen += "; strict share " + b.Binds
			if left := b.BurntMS; left > 0 {
				seen += fmt.Sprintf(" for %d s", (left+999)/1000)
			}
		}
		fmt.Fprintf(&b, "%-9s %-11s %6d %8d  %s\n", r.Region, r.Mode, r.Used, r.Ceiling, seen)
	}
	fmt.Fprintf(&b, "Together %d of %d units in %v for tenant %s, %d at most so far;\n",
		used, s.Units, BusyWindow, s.Tenant, s.Most.Estimated)
	fmt.Fprintf(&b, "%d for %s (max_overshoot: 0%%), %d at most.\n", strict, s.Strict, s.Most.Strict)
	if len(s.Cut) > 0 {
		fmt.Fprintf(&b, "Cut off: %s.", list(s.Cut))
	} else {
		b.WriteString("Nothing is cut.")
	}
	if s.Quiet {
		b.WriteString(" No traffic is made (--quiet).")
	}
	return b.String() + "\n"
}

// printer prints the table when the cuts have changed and every region knows: all are in mode global without a cut, and none with
// one. On the way there each second has another state.
type printer struct {
	out   io.Writer
	told  string // for which cuts it has printed
	table string // the newest
}

func (p *printer) look(s *PageState) {
	p.table = Table(s)
	cuts := fmt.Sprint(s.Cut)
	for i := range s.Regions {
		if (s.Regions[i].Mode == quota.ModeGlobal.String()) != (len(s.Cut) == 0) {
			return
		}
	}
	if cuts != p.told {
		fmt.Fprintln(p.out, p.table)
		p.told = cuts
	}
}
