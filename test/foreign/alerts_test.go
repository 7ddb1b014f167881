// Package foreign_test checks the files in deploy and docker-compose.multi.yml with the
// parsers of the programs that read them. These parsers come with many modules, which
// the module of regiond does without.
package foreign_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/regiond/regiond/test/metricsdoc"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func documented(t *testing.T) map[string]metricsdoc.Metric {
	t.Helper()
	metrics, err := metricsdoc.Parse(read(t, "docs/observe.md"))
	if err != nil {
		t.Fatal(err)
	}
	// Of Prometheus's own collectors, which the page does not list.
	for name, kind := range map[string]string{"process_cpu_seconds_total": "counter", "process_resident_memory_bytes": "gauge"} {
		metrics[name] = metricsdoc.Metric{Name: name, Type: kind}
	}
	return metrics
}

// TestAlertRules: Prometheus accepts the rules, their expressions use documented
// metrics, labels and values, and each alert has a severity and a section in the page.
func TestAlertRules(t *testing.T) {
	file, errs := rulefmt.Parse([]byte(read(t, "deploy/prometheus/regiond.rules.yml")), false)
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	metrics, page, runbook, rules := documented(t), read(t, "docs/observe.md"), read(t, "docs/operate.md"), 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules++
			if err := checkExpr(r.Expr, metrics); err != nil {
				t.Errorf("%s%s: %s: %v", r.Alert, r.Record, r.Expr, err)
			}
			if r.Alert == "" {
				continue
			}
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
				t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
			}
			if !strings.Contains(page, "\n### "+r.Alert+"\n") || !strings.HasSuffix(r.Annotations["runbook_url"], "#"+strings.ToLower(r.Alert)) {
				t.Errorf("%s has no section in docs/observe.md, or its runbook_url does not link to it", r.Alert)
			}
			if !strings.Contains(runbook, "\n| `"+r.Alert+"` | "+r.Labels["severity"]+" | ") {
				t.Errorf("%s has no row with its severity in docs/operate.md", r.Alert)
			}
		}
	}
	if rules < 20 {
		t.Errorf("only %d rules", rules)
	}
}

// checkExpr returns what is wrong with an expression: its syntax, or a metric, label or
// value that is not documented.
func checkExpr(expr string, metrics map[string]metricsdoc.Metric) error {
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return err
	}
	var errs []error
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok && v.Name != "up" && v.Name != "target_info" {
			errs = append(errs, checkSelector(v, path, metrics))
		}
		return nil
	})
	return errors.Join(errs...)
}

func checkSelector(v *parser.VectorSelector, path []parser.Node, metrics map[string]metricsdoc.Metric) error {
	m, histogram := metrics[v.Name], false
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(v.Name, suffix); ok && metrics[base].Type == "histogram" {
			m, histogram = metrics[base], true
		}
	}
	if m.Name == "" || m.Type == "histogram" && !histogram {
		return fmt.Errorf("%q is not a metric", v.Name)
	}
	has := func(label string) bool {
		_, ok := m.Label(label)
		return ok || label == "job" || label == "instance" || label == "le" && strings.HasSuffix(v.Name, "_bucket")
	}
	var errs []error
	for _, matcher := range v.LabelMatchers {
		l, _ := m.Label(matcher.Name)
		switch {
		case matcher.Name == labels.MetricName:
		case !has(matcher.Name):
			errs = append(errs, fmt.Errorf("%s has no label %q", v.Name, matcher.Name))
		case l.Values != nil:
			for value := range strings.SplitSeq(matcher.Value, "|") {
				if !slices.Contains(l.Values, value) {
					errs = append(errs, fmt.Errorf("%s never has %s=%q", v.Name, matcher.Name, value))
				}
			}
		}
	}
	rate := false
	for _, above := range path {
		switch above := above.(type) {
		case *parser.AggregateExpr:
			for _, name := range above.Grouping {
				if !has(name) {
					errs = append(errs, fmt.Errorf("%s has no label %q to group by", v.Name, name))
				}
			}
		case *parser.Call:
			rate = rate || above.Func.Name == "rate" || above.Func.Name == "increase"
		}
	}
	if counter := m.Type == "counter" || histogram; counter != rate {
		errs = append(errs, fmt.Errorf("%s is a %s: rate and increase are for counters, and counters need one of them", v.Name, m.Type))
	}
	return errors.Join(errs...)
}
