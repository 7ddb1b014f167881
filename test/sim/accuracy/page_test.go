package accuracy

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// marked is a page with nothing in it but what tables are put between.
func marked() string {
	var b strings.Builder
	for _, name := range []string{"focus", "overshoot", "utilisation", "windows"} {
		b.WriteString("before " + name + "\n\n<!-- table: " + name + " -->\nold\n<!-- end -->\n\nafter " + name + "\n")
	}
	return b.String()
}

// invented are figures for every cell, each its own.
func invented() []Result {
	var results []Result
	for i, c := range Grid() {
		n := int64(i)
		results = append(results, Result{Cell: c, Figures: Figures{
			Asked: 9000 + n, Admitted: 1000 + n, AllKnowing: 1000, Needless: n % 3, Worst: n - 20, Beyond: n - 30, P99: n, Mean: float64(n) / 8, Aligned: n - 40, Unexplained: -n,
		}})
	}
	return results
}

// withPage is a folder of documents with a page that has nothing in it but marks.
func withPage(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, pageFile), []byte(marked()), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestPageIsMadeFromFiguresAlone: what was measured is written, read back the same,
// and rendered twice to the same page; prose stays.
func TestPageIsMadeFromFiguresAlone(t *testing.T) {
	folder, results := withPage(t), invented()
	moments, err := timeline(Seed, shared)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFigures(folder, results, moments); err != nil {
		t.Fatal(err)
	}
	if err := WriteRendered(folder); err != nil {
		t.Fatal(err)
	}
	first := files(t, folder)
	if err := WriteRendered(folder); err != nil {
		t.Fatal(err)
	}
	for path, text := range files(t, folder) {
		if first[path] != text {
			t.Errorf("%s is not the same when it is rendered again", path)
		}
	}
	text := first[filepath.Join(folder, pageFile)]
	if strings.Contains(text, "old") || strings.Contains(text, unmeasured) || !strings.Contains(text, "before focus\n") || !strings.Contains(text, "after windows\n") {
		t.Errorf("the tables did not take the old ones' places alone:\n%.400s", text)
	}
	got, err := (&Documents{Folder: folder}).stored()
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, results)
}

func same(t *testing.T, got, want []Result) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d cells, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Figures != want[i].Figures || got[i].key() != want[i].key() {
			t.Fatalf("place %d: %v: %+v, want %v: %+v", i, got[i].Cell, got[i].Figures, want[i].Cell, want[i].Figures)
		}
	}
}

// TestResumeMeasuresWhatIsLeft and nothing else, and stores it where it belongs.
func TestResumeMeasuresWhatIsLeft(t *testing.T) {
	folder, results := withPage(t), invented()
	const missing = 7
	left := results[missing]
	if err := writeFigures(folder, slices.Delete(slices.Clone(results), missing, missing+1), nil); err != nil {
		t.Fatal(err)
	}
	d := Documents{Folder: folder, Resume: true, Build: shared, Workers: 2, Progress: func(done, of int) {
		if done != of {
			t.Errorf("%d of %d cells are done", done, of)
		}
	}}
	if err := Document(context.Background(), d); err != nil && !strings.Contains(err.Error(), left.String()) {
		t.Fatal(err)
	}
	got, err := d.stored()
	if err != nil {
		t.Fatal(err)
	}
	if got[missing].Asked == left.Asked || got[missing].Admitted != got[missing].AllKnowing {
		t.Errorf("the cell that was left has %+v: it was not measured", got[missing].Figures)
	}
	got[missing] = left
	same(t, got, results)
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "*/*"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			text, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			all[p] = string(text)
		}
	}
	if len(all) != 7 {
		t.Fatalf("%d files below %s, want a page, two of figures and four plots", len(all), dir)
	}
	return all
}

// TestWhatIsMissingIsNamed: no hole in a table, no lost mark, no other file's columns.
func TestWhatIsMissingIsNamed(t *testing.T) {
	if _, err := focusTable(index{}); err == nil || !strings.Contains(err.Error(), "steady 0.8×, 3 regions") {
		t.Errorf("a table of nothing gave %v", err)
	}
	for _, page := range []string{"", "<!-- table: focus -->\nno end\n"} {
		if _, err := fill(page, map[string]string{"focus": "x\n"}); err == nil || !strings.Contains(err.Error(), "table: focus") {
			t.Errorf("the page %q gave %v", page, err)
		}
	}
	row := strings.Join(header, ",") + "\nsteady 3×,2,20,1,2,1,1,1,1,1,1,1,1,1,x\n"
	for text, want := range map[string]string{
		"":                                  "make accuracy",
		"a,b\n":                             "make accuracy",
		strings.Replace(row, "3×", "4×", 1): `line 2: no workload is called "steady 4×"`,
		row:                                 `line 2: unexplained: "x" is not a number`,
	} {
		if _, err := ReadCSV(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("figures %q gave %v, want one that says %q", text, err, want)
		}
	}
}

// TestReportSaysWhatIsUnexplained: it prints a line for each cell all the same.
func TestReportSaysWhatIsUnexplained(t *testing.T) {
	var out strings.Builder
	err := Report(context.Background(), &out, deaf, 2)
	if err == nil || !strings.Contains(err.Error(), "steady 10×, 30 regions") || strings.Contains(err.Error(), "0.8×") {
		t.Errorf("regions that know nothing of each other gave %v", err)
	}
	if !strings.Contains(out.String(), "moving hot region 10×") || strings.Count(out.String(), "\n") != 3+len(Focus()) {
		t.Errorf("the report is\n%s", out.String())
	}
	if err := Unexplained([]Result{{Cell: centre()}}); err != nil {
		t.Errorf("nothing unexplained gave %v", err)
	}
}
