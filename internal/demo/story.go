package demo

import (
	"fmt"
	"slices"
	"strings"
)

// Story says what a cut or its healing did and what will be seen next. program is
// how regiond is called, port the demo's first.
func (c *Change) Story(program string, port int) string {
	switch {
	case c.Off && !c.Changed:
		return fmt.Sprintf("%s is cut off already; heal it with:\n  %s\n", c.Region, commandLine(program, "heal", c.Region, port))
	case c.Off:
		return c.cut(commandLine(program, "heal", c.Region, port))
	case !c.Changed:
		return fmt.Sprintf("%s is not cut off; cut it off with:\n  %s\n", c.Region, commandLine(program, "cut", c.Region, port))
	default:
		return c.healed()
	}
}

func (c *Change) cut(heal string) string {
	var b strings.Builder
	together := without(c.Regions, c.Cut)
	fmt.Fprintf(&b, "%s is cut off from %s, both ways.\n", c.Region, list(without(c.Regions, []string{c.Region})))
	b.WriteString("\nWithin 2 seconds nobody is in mode global any more:\n")
	if len(together) > 1 {
		fmt.Fprintf(&b, "  %s only its own part of every global limit: mode partitioned\n", may(c.Cut))
		fmt.Fprintf(&b, "  %s go on together with the parts of %s\n", list(together), number(len(together)))
	} else {
		b.WriteString("  each region may use its own part of every global limit: mode partitioned\n")
	}
	fmt.Fprintf(&b, "  tenant %s (on_partition: open) is limited as if the others were idle\n", Open)
	fmt.Fprintf(&b, "  tenant %s (on_partition: closed) is refused\n", Closed)
	fmt.Fprintf(&b, "\nHeal it with:\n  %s\n", heal)
	return b.String()
}

func (c *Change) healed() string {
	if len(c.Cut) > 0 {
		return fmt.Sprintf("%s is connected again; still cut off: %s\n", c.Region, list(c.Cut))
	}
	return fmt.Sprintf("%s is connected again. Nobody has to do anything:\n", c.Region) +
		"  every region tells the others what it has admitted meanwhile\n" +
		"  within about 3 seconds all are back in mode global; after a cut that\n" +
		"  follows another within a minute they wait longer, up to 30 seconds\n"
}

func may(regions []string) string {
	if len(regions) == 1 {
		return regions[0] + " may use"
	}
	return list(regions) + " may each use"
}

func number(n int) string {
	if n == 2 {
		return "both"
	}
	return "all"
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(r string) bool { return slices.Contains(some, r) })
}

// list is words as in a sentence.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
