package accuracy

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The page, below the folder of documents, and the figures that its tables come from.
const (
	pageFile = "accuracy.md"
	gridFile = "accuracy/grid.csv"
	plotFile = "accuracy/bounds.svg"
)

// Document measures the cells of Grid whose description contains only, keeps the stored figures of the others, stores all below a
// folder of documents and writes the tables of its page.
func Document(ctx context.Context, docs, only string, workers int) error {
	cells := slices.DeleteFunc(Grid(), func(c Cell) bool { return !strings.Contains(c.String(), only) })
	measured, err := Run(ctx, cells, Seed, workers)
	if err != nil {
		return err
	}
	if len(cells) < len(Grid()) {
		all, err := stored(docs)
		if err != nil {
			return err
		}
		x := newIndex(all)
		for _, r := range measured {
			x[r.key()] = r
		}
		measured = measured[:0]
		for _, c := range Grid() {
			r, err := x.find(c)
			if err != nil {
				return err
			}
			measured = append(measured, r)
		}
	}
	if err := store(docs, measured); err != nil {
		return err
	}
	if err := WritePage(docs); err != nil {
		return err
	}
	return Misses(measured)
}

// store writes figures, which are in the order of Grid.
func store(docs string, results []Result) error {
	var grid bytes.Buffer
	if err := WriteCSV(&grid, results); err != nil {
		return err
	}
	file := filepath.Join(docs, gridFile)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, grid.Bytes(), 0o644)
}

func stored(docs string) ([]Result, error) {
	f, err := os.Open(filepath.Join(docs, gridFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadCSV(f)
}

// Page returns the page with its tables made from the stored figures.
func Page(docs string) (string, error) {
	results, err := stored(docs)
	if err != nil {
		return "", err
	}
	tables, err := tables(newIndex(results))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(docs, pageFile))
	if err != nil {
		return "", err
	}
	return fill(string(text), tables)
}

// WritePage stores what Page and Plot return.
func WritePage(docs string) error {
	text, err := Page(docs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, pageFile), []byte(text), 0o644); err != nil {
		return err
	}
	plot, err := Plot(docs)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, plotFile), []byte(plot), 0o644)
}

// tables are the generated tables of the page by name.
func tables(x index) (map[string]string, error) {
	worst := func(r Result) string { return bare(r.Worst) }
	used := func(r Result) string { return strings.TrimSuffix(r.utilisation(), " %") }
	focus, err := focusTable(x)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"focus":       focus.markdown(),
		"events":      byEvent(x).markdown(),
		"bounds":      byBound(x).markdown(),
		"overshoot":   byGeography(x, worst).markdown(),
		"utilisation": byGeography(x, used).markdown(),
		"windows":     byWindow(x, worst).markdown(),
	}, nil
}

// fill puts each table between its two marks.
func fill(page string, tables map[string]string) (string, error) {
	for name, text := range tables {
		begin, end := "<!-- table: "+name+" -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(page, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			return "", fmt.Errorf("%s has no lines %q and %q", pageFile, strings.TrimSpace(begin), strings.TrimSpace(end))
		}
		page = before + begin + text + end + after
	}
	return page, nil
}
