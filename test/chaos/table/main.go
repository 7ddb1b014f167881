//go:build linux

// Command table reads the figures that scenarios have written to a directory and prints
// them as a table in Markdown. It fails when the machine was too busy to judge promptness in
// more than a third of them.
//
//	go run ./test/chaos/table bin/chaos
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

func main() {
	dir := "bin/chaos"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := write(os.Stdout, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(out io.Writer, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s holds no figures: run `make chaos`", dir)
	}
	var all []chaos.Figures
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var f chaos.Figures
		if err := json.Unmarshal(text, &f); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b chaos.Figures) int { return cmp.Compare(a.Test, b.Test) })
	fmt.Fprintln(out, "| scenario | requests/s | answers | lost | slowest ms | above bare: p99.9, max ms | seconds judged | noticed ms | whole again ms | totals equal ms | above L, most | fullest of B: 0 %, 10 %, month, hour | first loan after a loss ms | closed by a clock ms |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	unjudged := 0
	for _, f := range all {
		note := ""
		if f.Run > 1 {
			note = fmt.Sprintf(" (run %d)", f.Run)
		}
		if f.Unjudged {
			unjudged++
			note += " (promptness not judged)"
		}
		if f.Overload.Stalled > 0 && f.Overload.Judged == 0 {
			note += " (overload not judged)"
		}
		if f.Failed {
			note += " (objected to)"
		}
		fmt.Fprintf(out, "| %s%s | %d | %d | %d | %.0f | %.0f, %.0f | %d of %d | %.0f | %.0f | %.0f | %d | %s | %.0f | %.0f |\n",
			f.Test, note, f.Rate, f.Answers, f.Lost, f.MaxMS, f.OverLate, f.OverMax, f.Judged, f.Judged+f.Starved,
			f.NoticeMS, f.AgainMS, f.SettledMS, f.Over, fullest(f.Fullest), f.LentMS, f.ClosedMS)
	}
	achieved(out, all)
	if 3*unjudged > len(all) {
		return fmt.Errorf("in %d of %d scenarios the machine had too little left to judge promptness: stop what else it does, and run them again", unjudged, len(all))
	}
	return nil
}

// fullest are the fullest windows under the bounds, and the bounds.
func fullest(all map[string]judge.Fullest) string {
	strict, judged := all[traffic.Strict]
	if !judged {
		return "–"
	}
	tenth, month, hour := all[traffic.Tenth], all[traffic.Month], all[traffic.Hour]
	return fmt.Sprintf("%d of %d, %d of %d, %d of %d, %d of %d",
		strict.Units, strict.Of, tenth.Units, tenth.Of, month.Units, month.Of, hour.Units, hour.Of)
}

// achieved prints what hostile peers achieved.
func achieved(out io.Writer, all []chaos.Figures) {
	all = slices.DeleteFunc(slices.Clone(all), func(f chaos.Figures) bool { return f.Achieved == nil })
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(out, "\n| hostile peer | memory MiB, most | members seen, fewest | refused | answers not global | denied | beside |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, f := range all {
		fmt.Fprintf(out, "| %s | %v |\n", f.Test, f.Achieved)
	}
}
