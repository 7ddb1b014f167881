package metricsdoc_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/regiond/regiond/test/metricsdoc"
)

// rule is one of the rules file, alert or record.
type rule struct {
	Alert       string            `yaml:"alert"`
	Record      string            `yaml:"record"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file ruleFile
	if err := yaml.UnmarshalWithOptions([]byte(read(t, "deploy/prometheus/regiond.rules.yml")), &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("only %d rules", len(all))
	}
	return all
}

func page(t *testing.T) (map[string]metricsdoc.Metric, map[string]bool) {
	t.Helper()
	text := read(t, "docs/observe.md")
	metrics, err := metricsdoc.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return metrics, metricsdoc.Anchors(text)
}

// ambient are the labels that Prometheus itself gives to what it scrapes.
func ambient(name string) bool { return slices.Contains([]string{"job", "instance"}, name) }

// checkExpr says what in an expression is no PromQL, or speaks of metrics, labels
// and values that docs/observe.md does not have.
func checkExpr(expr string, metrics map[string]metricsdoc.Metric) error {
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return err
	}
	var errs []error
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			errs = append(errs, checkSelector(v, path, metrics))
		}
		return nil
	})
	return errors.Join(errs...)
}

func checkSelector(v *parser.VectorSelector, path []parser.Node, metrics map[string]metricsdoc.Metric) error {
	m, series, ok := find(v.Name, metrics)
	if v.Name == "up" {
		m, ok = metricsdoc.Metric{Name: "up", Type: "gauge"}, true
	}
	if !ok {
		return fmt.Errorf("%q is no metric", v.Name)
	}
	var errs []error
	for _, matcher := range v.LabelMatchers {
		if matcher.Name != labels.MetricName {
			errs = append(errs, checkMatcher(m, series, matcher))
		}
	}
	counted := false
	for _, above := range path {
		switch above := above.(type) {
		case *parser.AggregateExpr:
			for _, name := range above.Grouping {
				if !has(m, series, name) {
					errs = append(errs, fmt.Errorf("%s has no label %q to group by", v.Name, name))
				}
			}
		case *parser.Call:
			counted = counted || above.Func.Name == "rate" || above.Func.Name == "increase"
		}
	}
	if counter := m.Type == "counter" || series != ""; counter != counted {
		errs = append(errs, fmt.Errorf("%s is a %s: rate and increase are for counters, and counters for them", v.Name, m.Type))
	}
	return errors.Join(errs...)
}

// find returns the metric that a series belongs to, and its suffix in a histogram.
func find(name string, metrics map[string]metricsdoc.Metric) (m metricsdoc.Metric, series string, ok bool) {
	if m, ok = metrics[name]; ok {
		return m, "", m.Type != "histogram"
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, cut := strings.CutSuffix(name, suffix); cut && metrics[base].Type == "histogram" {
			return metrics[base], suffix, true
		}
	}
	return m, "", false
}

func has(m metricsdoc.Metric, series, name string) bool {
	_, ok := m.Label(name)
	return ok || ambient(name) || name == "le" && series == "_bucket"
}

// checkMatcher wants every documented value that a matcher is about to exist.
func checkMatcher(m metricsdoc.Metric, series string, matcher *labels.Matcher) error {
	if !has(m, series, matcher.Name) {
		return fmt.Errorf("%s has no label %q", m.Name, matcher.Name)
	}
	l, _ := m.Label(matcher.Name)
	if l.Values == nil {
		return nil
	}
	for value := range strings.SplitSeq(matcher.Value, "|") {
		if !slices.Contains(l.Values, value) {
			return fmt.Errorf("%s is never %q in %s", matcher.Name, value, m.Name)
		}
	}
	return nil
}

// Every expression is PromQL and names what exists.
func TestRulesNameWhatExists(t *testing.T) {
	metrics, _ := page(t)
	for _, r := range rules(t) {
		if err := checkExpr(r.Expr, metrics); err != nil {
			t.Errorf("%s%s: %s: %v", r.Alert, r.Record, r.Expr, err)
		}
	}
}

// The judge of the test above finds each kind of mistake.
func TestCheckExprBites(t *testing.T) {
	metrics, _ := page(t)
	for expr, want := range map[string]string{
		`rate(regiond_http_panics_total[5m]) > 0`:                           "",
		`up{job="regiond"} == 0`:                                            "",
		`rate(regiond_http_panics_total[5m) > 0`:                            "parse error",
		`rate(regiond_http_panics_total) > 0`:                               "expected type range vector",
		`rate(regiond_http_panic_total[5m])`:                                "no metric",
		`regiond_http_panics_total > 0`:                                     "for counters",
		`increase(regiond_ready[5m])`:                                       "for counters",
		`regiond_mode{modus="global"}`:                                      "no label",
		`regiond_mode{mode="stale"}`:                                        "never",
		`regiond_region_state{state=~"silent|death"}`:                       "never",
		`sum by (le) (rate(regiond_http_duration_seconds_count[5m]))`:       "group by",
		`rate(regiond_http_duration_seconds[5m])`:                           "no metric",
		`histogram_quantile(2, rate(regiond_http_panics_total_bucket[5m]))`: "no metric",
	} {
		err := checkExpr(expr, metrics)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", expr, err, want)
		}
	}
}

var template = regexp.MustCompile(`\$labels\.([a-z_]+)`)

// An alert says how bad it is, what it means and where to read on; it speaks of
// labels that its expression leaves, and the page has a chapter about it.
func TestAlertsAreExplained(t *testing.T) {
	_, anchors := page(t)
	const where = "https://github.com/regiond/regiond/blob/main/docs/observe.md#"
	chapters := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Regiond\w+)$`).FindAllStringSubmatch(read(t, "docs/observe.md"), -1) {
		chapters[m[1]] = true
	}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || len(r.Labels) != 1 {
			t.Errorf("%s has the labels %v, want a severity", r.Alert, r.Labels)
		}
		if d, err := time.ParseDuration(r.For); err != nil || d < 0 || d > time.Hour {
			t.Errorf("%s is for %q", r.Alert, r.For)
		}
		if len(r.Annotations["summary"]) < 10 || len(r.Annotations["description"]) < 40 {
			t.Errorf("%s does not say what it means", r.Alert)
		}
		if anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], where); !ok || anchor != strings.ToLower(r.Alert) || !anchors[anchor] {
			t.Errorf("%s leads to %s, which is not there", r.Alert, r.Annotations["runbook_url"])
		}
		for _, text := range r.Annotations {
			for _, m := range template.FindAllStringSubmatch(text, -1) {
				if !leaves(t, r.Expr, m[1]) {
					t.Errorf("%s speaks of the label %q, which its expression does not leave", r.Alert, m[1])
				}
			}
		}
		if !chapters[r.Alert] {
			t.Errorf("docs/observe.md has no chapter about %s", r.Alert)
		}
		delete(chapters, r.Alert)
	}
	for name := range chapters {
		t.Errorf("docs/observe.md explains %s, which is no alert", name)
	}
}

// leaves reports whether the result of an expression can have a label: the outermost
// aggregations decide, and without one the metric does.
func leaves(t *testing.T, expr, label string) bool {
	t.Helper()
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	metrics, _ := page(t)
	kept := true
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			inside := slices.ContainsFunc(path, func(p parser.Node) bool { _, ok := p.(*parser.AggregateExpr); return ok })
			kept = kept && (inside || slices.Contains(n.Grouping, label))
		case *parser.VectorSelector:
			m, series, _ := find(n.Name, metrics)
			kept = kept && has(m, series, label)
		}
		return nil
	})
	return kept
}
