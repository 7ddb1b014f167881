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
	Unit   string
	Labels []Label
	Says   string
}

// Label is one label of a metric.
type Label struct {
	Name string
	// Values are all that it can have; nil when a topology or a build chooses them.
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

// Parse returns the metrics of the page by name. A row that looks like one and is
// none is an error, and so is a name that comes twice.
func Parse(page string) (map[string]Metric, error) {
	metrics := map[string]Metric{}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		m := row.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			return nil, fmt.Errorf("not a row of five cells about a metric: %.60s…", line)
		}
		if _, twice := metrics[m[1]]; twice {
			return nil, fmt.Errorf("%s has two rows", m[1])
		}
		labels, err := parseLabels(m[4])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m[1], err)
		}
		metrics[m[1]] = Metric{Name: m[1], Type: m[2], Unit: m[3], Labels: labels, Says: m[5]}
	}
	return metrics, nil
}

// parseLabels reads "`name`: `value` `value`; `name`: in words", or "–" for none.
// Values in backticks are all there are, unless the cell speaks of others in words
// before them.
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

var heading = regexp.MustCompile(`(?m)^#+ (.+)$`)

// Anchors returns the places of the page that a link can lead to.
func Anchors(page string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		anchors[strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")] = true
	}
	return anchors
}
