package metricsdoc_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
)

var alertRow = regexp.MustCompile("(?m)^\\| `(Regiond\\w+)` \\| (\\w+) \\| (.+) \\|$")

// misplaced is what differs between alerts and the table of them on a page: both say
// of each how severe it is.
func misplaced(page string, severity map[string]string) (wrong []string) {
	listed := map[string]bool{}
	for _, m := range alertRow.FindAllStringSubmatch(page, -1) {
		name, says := m[1], m[2]
		switch want, ok := severity[name]; {
		case !ok:
			wrong = append(wrong, name+" is no alert")
		case listed[name]:
			wrong = append(wrong, name+" stands twice")
		case says != want:
			wrong = append(wrong, fmt.Sprintf("%s is %s, and not %s", name, want, says))
		}
		listed[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(severity)) {
		if !listed[name] {
			wrong = append(wrong, name+" is missing")
		}
	}
	return wrong
}

// TestOperationsListsTheAlerts: who is woken finds the alert on the page, with what to
// do first, and the page speaks of no other.
func TestOperationsListsTheAlerts(t *testing.T) {
	severity := map[string]string{}
	for _, r := range rules(t) {
		if r.Alert != "" {
			severity[r.Alert] = r.Labels["severity"]
		}
	}
	for _, wrong := range misplaced(read(t, "docs/operate.md"), severity) {
		t.Errorf("docs/operate.md: %s", wrong)
	}
}

func TestMisplacedBites(t *testing.T) {
	const page = "| `RegiondDown` | critical | look |\n| `RegiondUp` | info | be glad |\n| `RegiondBlind` | info | look |\n| `RegiondDown` | critical | again |\n"
	got := misplaced(page, map[string]string{"RegiondDown": "critical", "RegiondBlind": "warning", "RegiondFrozen": "warning"})
	want := []string{"RegiondUp is no alert", "RegiondBlind is warning, and not info", "RegiondDown stands twice", "RegiondFrozen is missing"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
