package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// report writes what becomes of the mutants, line by line.
type report struct {
	out   io.Writer
	width int  // of the longest name
	alone bool // there is one mutant, and its tests' words are wanted
	count map[fate]int
	total int
	spent time.Duration
}

func newReport(out io.Writer, ms []mutant) *report {
	r := &report{out: out, alone: len(ms) == 1, count: map[fate]int{}, total: len(ms)}
	for _, m := range ms {
		r.width = max(r.width, len(m.name))
	}
	return r
}

// measured tells how the tests do without a mutant.
func (r *report) measured(b *baseline, took time.Duration) {
	bad := 0
	for _, err := range b.faults {
		if err != nil {
			bad++
		}
	}
	if bad > 0 {
		fmt.Fprintf(r.out, "%d of %d tests do not pass without a mutant; those that rely on them say why\n", bad, len(b.faults))
		return
	}
	fmt.Fprintf(r.out, "%d tests pass without a mutant (%s)\n\n", len(b.faults), seconds(took))
}

// tell writes a mutant's line, and below it why it is not killed.
func (r *report) tell(t result) {
	r.count[t.fate]++
	r.spent += t.built + t.tested
	m := &t.mutant
	fmt.Fprintf(r.out, "%-8s  %-*s  build %5s  test %5s  %s\n", t.fate, r.width, m.name, seconds(t.built), seconds(t.tested), m.breaks)
	if t.fate != killed {
		fmt.Fprintf(r.out, "%s\n", indent(t.why))
		fmt.Fprintf(r.out, "          again: make mutants MUTANT=%s\n", m.name)
	}
	if r.alone {
		fmt.Fprintf(r.out, "\n%s:\n%s\n", m.file, indent("- "+m.old+"\n+ "+m.becomes))
		fmt.Fprintf(r.out, "%s", indent(strings.TrimRight(t.said, "\n"))+"\n")
	}
}

// sum writes the last line and returns the exit code.
func (r *report) sum(took time.Duration) int {
	fmt.Fprintf(r.out, "\n%d of %d killed", r.count[killed], r.total)
	if n := r.count[survived]; n > 0 {
		fmt.Fprintf(r.out, ", %d survived: no test guards what they break", n)
	}
	if n := r.count[wrong]; n > 0 {
		fmt.Fprintf(r.out, ", %d wrong: the table has to be mended", n)
	}
	fmt.Fprintf(r.out, " (%s)\n", seconds(took))
	if r.count[killed] < r.total {
		return 1
	}
	return 0
}

func printList(out io.Writer, ms []mutant) {
	r := newReport(out, ms)
	for _, m := range ms {
		fmt.Fprintf(out, "%-*s  %s (%s)\n", r.width, m.name, m.breaks, m.file)
	}
}

func indent(text string) string {
	return "          " + strings.ReplaceAll(text, "\n", "\n          ")
}

// seconds is a duration to a tenth of a second.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
