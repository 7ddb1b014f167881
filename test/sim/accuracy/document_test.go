package accuracy

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDocument: a run that is resumed measures the missing cell and no other, stores it
// in its place, and writes the tables between their marks.
func TestDocument(t *testing.T) {
	folder, page := t.TempDir(), ""
	for _, name := range []string{"focus", "events", "bounds", "overshoot", "utilisation", "windows"} {
		page += "before " + name + "\n<!-- table: " + name + " -->\nold\n<!-- end -->\nafter " + name + "\n"
	}
	if err := os.WriteFile(filepath.Join(folder, pageFile), []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	var results []Result // figures that are all different
	for i, c := range Grid() {
		n := int64(i)
		f := Figures{
			Asked: 9000 + n, Admitted: 1000 + n, AllKnowing: 1000, Needless: n % 3, Worst: -n, P99: n, Mean: float64(n) / 8, Aligned: n - 40,
		}
		results = append(results, Result{Cell: c, Figures: f, Reference: Figures{Admitted: f.Admitted, Needless: 3 + n, Worst: 1 - n}})
	}
	const missing = 7
	if err := store(folder, slices.Delete(slices.Clone(results), missing, missing+1)); err != nil {
		t.Fatal(err)
	}
	measured := 0
	d := Documents{Folder: folder, Resume: true, Build: shared, Workers: 2, Progress: func(done, of int) { measured += of - done + 1 }}
	if err := Document(context.Background(), d); err != nil {
		t.Fatal(err)
	}
	got, err := stored(folder)
	if err != nil || len(got) != len(results) || measured != 1 {
		t.Fatalf("%d cells are stored, %d were measured: %v", len(got), measured, err)
	}
	if f := got[missing].Figures; f.Asked == results[missing].Asked || f.Admitted != f.AllKnowing {
		t.Errorf("the missing cell was not measured: %+v", f)
	}
	got[missing] = results[missing]
	for i := range results {
		if got[i].Figures != results[i].Figures || got[i].Reference != results[i].Reference || got[i].key() != results[i].key() {
			t.Fatalf("cell %d: %+v, want %+v", i, got[i], results[i])
		}
	}
	text, err := Page(folder)
	if err != nil || strings.Contains(text, "old") || strings.Contains(text, unmeasured) || !strings.Contains(text, "before focus\n") || !strings.Contains(text, "after windows\n") {
		t.Errorf("%v: the tables are not between their marks:\n%.400s", err, text)
	}
}

// TestErrors: missing cells, marks and columns are named.
func TestErrors(t *testing.T) {
	if _, err := focusTable(index{}); err == nil || !strings.Contains(err.Error(), "steady 0.8×, 3 regions") {
		t.Errorf("a table without figures: %v", err)
	}
	if _, err := fill("<!-- table: focus -->\nno end\n", map[string]string{"focus": "x\n"}); err == nil || !strings.Contains(err.Error(), "table: focus") {
		t.Errorf("a page without marks: %v", err)
	}
	row := strings.Join(header, ",") + "\nsteady 3×,none,,2,20,1,1,1,1,1,1,1,1,1,1,1,x\n"
	for text, want := range map[string]string{
		"a,b\n":                              "make accuracy",
		strings.Replace(row, "3×", "4×", 1):  `line 2: no workload is called "steady 4×"`,
		strings.Replace(row, "none", "1", 1): `line 2: max_overshoot: "1" must be none`,
		row:                                  `line 2: reference_worst: "x" is not a number`,
	} {
		if _, err := ReadCSV(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("figures %q: %v, want %q", text, err, want)
		}
	}
	var out bytes.Buffer
	err := Report(context.Background(), &out, isolated, 2)
	if err == nil || !strings.Contains(err.Error(), "steady 10×, 30 regions") || strings.Contains(err.Error(), "0.8×") {
		t.Errorf("regions that know nothing of each other: %v", err)
	}
	if strings.Count(out.String(), "\n") != 3+len(Focus()) {
		t.Errorf("the report is\n%s", out.String())
	}
}
