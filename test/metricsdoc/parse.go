// Package metricsdoc reads the tables of docs/observe.md, so that tests can compare
// the page with the exported metrics and with the alert rules.
package metricsdoc

import (
	"fmt"
	"regexp"
	"strings"
)

// Metric is one row of the page.
type Metric struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels []Label
}

// Label is one label of a metric.
type Label struct {
	Name string
	// Values are all possible values; nil if the topology or the build chooses them.
	Values []string
}

// Label returns the label of that name.
func (m *Metric) Label(name string) (Label, bool) {
	for _, l := range m.Labels {
		if l.Name == name {
			return l, true
		}
	}
	return Label{}, false
}

var (
	row    = regexp.MustCompile("^\\| `(regiond_[a-z0-9_]+)` ?[¹²³⁴]? \\| ([a-z]+) \\| ([^|]+) \\| ([^|]+) \\| ([^|]+) \\|$")
	quoted = regexp.MustCompile("`([^`]+)`")
)

// Parse returns the metrics of the page by name. A malformed row and a second row for
// the same metric are errors.
func Parse(page string) (map[string]Metric, error) {
	metrics := map[string]Metric{}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| `regiond_") {
			continue
		}
		m := row.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			return nil, fmt.Errorf("malformed row, want five cells: %.60s…", line)
		}
		if _, exists := metrics[m[1]]; exists {
			return nil, fmt.Errorf("%s has two rows", m[1])
		}
		labels, err := parseLabels(m[4])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m[1], err)
		}
		metrics[m[1]] = Metric{Name: m[1], Type: m[2], Labels: labels}
	}
	return metrics, nil
}

// parseLabels reads "`name`: `value` `value`; `name`: description", or "–" for none.
func parseLabels(cell string) ([]Label, error) {
	if cell == "–" {
		return nil, nil
	}
	var labels []Label
	for part := range strings.SplitSeq(cell, ";") {
		name, values, ok := strings.Cut(strings.TrimSpace(part), ":")
		q := quoted.FindStringSubmatch(name)
		if !ok || q == nil || q[0] != name {
			return nil, fmt.Errorf("%q is not `label`: values", part)
		}
		l := Label{Name: q[1]}
		if values = strings.TrimSpace(values); strings.HasPrefix(values, "`") {
			for _, v := range quoted.FindAllStringSubmatch(values, -1) {
				l.Values = append(l.Values, v[1])
			}
		}
		labels = append(labels, l)
	}
	return labels, nil
}
