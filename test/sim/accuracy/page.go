package accuracy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Where the page is, below the folder of documents, and what it is made from.
const (
	pageFile     = "accuracy.md"
	figuresDir   = "accuracy"
	gridFile     = "grid.csv"
	timelineFile = "timeline.csv"
)

// writeFigures stores what was measured below the folder of documents, in the order
// of Grid.
func writeFigures(docs string, results []Result, moments []moment) error {
	place := map[string]int{}
	for i, c := range Grid() {
		place[c.key()] = i
	}
	slices.SortFunc(results, func(a, b Result) int { return cmp.Compare(place[a.key()], place[b.key()]) })
	var grid, line bytes.Buffer
	if err := errors.Join(WriteCSV(&grid, results), writeTimeline(&line, moments)); err != nil {
		return err
	}
	dir := filepath.Join(docs, figuresDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, gridFile), grid.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, timelineFile), line.Bytes(), 0o644),
	)
}

// Render makes, from the stored figures alone, the plots and the page with its
// generated parts anew: the files of the folder of documents, by path.
func Render(docs string) (map[string]string, error) {
	results, err := fromFile(filepath.Join(docs, figuresDir, gridFile), ReadCSV)
	if err != nil {
		return nil, err
	}
	moments, err := fromFile(filepath.Join(docs, figuresDir, timelineFile), readTimeline)
	if err != nil {
		return nil, err
	}
	x := newIndex(results)
	svgs, err := plots(x, moments)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, svg := range svgs {
		files[filepath.Join(docs, figuresDir, name)] = svg
	}
	parts, err := parts(x)
	if err != nil {
		return nil, err
	}
	page := filepath.Join(docs, pageFile)
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	if files[page], err = fill(string(text), parts); err != nil {
		return nil, fmt.Errorf("%s: %w", page, err)
	}
	return files, nil
}

// WriteRendered stores what Render makes.
func WriteRendered(docs string) error {
	files, err := Render(docs)
	if err != nil {
		return err
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func fromFile[T any](path string, read func(io.Reader) ([]T, error)) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// parts are the generated tables of the page.
func parts(x index) (map[string]string, error) {
	worst := func(r Result) string { return bare(r.Worst) }
	used := func(r Result) string { return strings.TrimSuffix(r.utilisation(), " %") }
	focus, err := focusTable(x)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"focus":       focus.markdown(),
		"overshoot":   byGeography(x, worst).markdown(),
		"utilisation": byGeography(x, used).markdown(),
		"windows":     byWindow(x, worst).markdown(),
	}, nil
}

// fill puts each part between its two marks, and leaves the rest as it is.
func fill(page string, parts map[string]string) (string, error) {
	for name, text := range parts {
		begin, end := "<!-- table: "+name+" -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(page, begin)
		if !ok {
			return "", fmt.Errorf("there is no line %q to put a table behind", strings.TrimSpace(begin))
		}
		_, after, ok := strings.Cut(rest, end)
		if !ok {
			return "", fmt.Errorf("no line %q follows %q", strings.TrimSpace(end), strings.TrimSpace(begin))
		}
		page = before + begin + text + end + after
	}
	return page, nil
}
