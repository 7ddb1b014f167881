package accuracy

import (
	"strings"
	"testing"
)

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
}
