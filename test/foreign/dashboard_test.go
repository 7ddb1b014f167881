package foreign_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// dashboard is what this test knows of Grafana's JSON.
type dashboard struct {
	UID        string           `json:"uid"`
	Inputs     *json.RawMessage `json:"__inputs"`
	Templating struct {
		List []struct {
			Name       string     `json:"name"`
			Type       string     `json:"type"`
			Datasource datasource `json:"datasource"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type datasource struct {
	UID string `json:"uid"`
}

type panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  datasource `json:"datasource"`
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	} `json:"targets"`
}

const chosen = "${datasource}"

// TestDashboard: Prometheus parses every expression of the dashboard, each uses documented
// metrics and labels, follows the variables, and has the labels that its legend shows. It is
// imported as it is: a fixed uid, no inputs, one data source that the reader chooses.
func TestDashboard(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/regiond.json")), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID != "regiond" || d.Inputs != nil {
		t.Errorf("uid %q, inputs %v", d.UID, d.Inputs)
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
		if v.Type != "datasource" && v.Datasource.UID != chosen {
			t.Errorf("the variable %s has the data source %q", v.Name, v.Datasource.UID)
		}
	}
	if !slices.Equal(names, []string{"datasource", "job", "region", "policy"}) {
		t.Errorf("the variables are %q", names)
	}
	metrics, ids, exprs := documented(t), map[int]bool{}, 0
	for i := range d.Panels {
		p := &d.Panels[i]
		if ids[p.ID] {
			t.Errorf("%s: the id %d is another panel's", p.Title, p.ID)
		}
		ids[p.ID] = true
		if g := p.GridPos; g.X < 0 || g.X+g.W > 24 || g.W <= 0 || g.H <= 0 || overlaps(p, d.Panels[:i]) {
			t.Errorf("%s: its place %+v is outside the page, or another panel's", p.Title, g)
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != chosen || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%s: data source %q, description %q, %d queries", p.Title, p.Datasource.UID, p.Description, len(p.Targets))
		}
		for _, target := range p.Targets {
			exprs++
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			if err := checkExpr(expr, metrics); err != nil {
				t.Errorf("%s: %s: %v", p.Title, target.Expr, err)
				continue
			}
			if err := checkPanelExpr(expr, target.Legend); err != nil {
				t.Errorf("%s: %s: %v", p.Title, target.Expr, err)
			}
		}
	}
	if exprs < 40 {
		t.Errorf("only %d expressions", exprs)
	}
}

func overlaps(p *panel, others []panel) bool {
	a := p.GridPos
	return slices.ContainsFunc(others, func(o panel) bool {
		b := o.GridPos
		return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
	})
}

var shown = regexp.MustCompile(`\{\{(\w+)\}\}`)

// checkPanelExpr returns what is wrong with an expression for a panel: a metric that is not
// of the chosen jobs and regions, or of the chosen policies, or a label in the legend that
// the result does not have.
func checkPanelExpr(expr, legend string) error {
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return err
	}
	var grouping []string
	aggregated := false
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			if !aggregated {
				aggregated, grouping = true, n.Grouping
			}
		case *parser.VectorSelector:
			if n.Name == "target_info" {
				if !strings.Contains(n.String(), `cloud_region=~"$region"`) {
					err = fmt.Errorf("%s does not choose by region", n)
				}
				return nil
			}
			if s := n.String(); !strings.Contains(s, `job=~"$job"`) || !joined(path) {
				err = fmt.Errorf("%s is not of the chosen jobs and regions", s)
			}
			if s := n.String(); slices.Contains(grouping, "policy") && !strings.Contains(s, `policy=~"$policy"`) {
				err = fmt.Errorf("%s is not of the chosen policies", s)
			}
		}
		return nil
	})
	for _, label := range shown.FindAllStringSubmatch(legend, -1) {
		if aggregated && !slices.Contains(grouping, label[1]) {
			err = fmt.Errorf("the legend shows %q, which the result does not have", label[1])
		}
	}
	return err
}

// joined reports whether a selector is one side of "… and on (job, instance) target_info".
func joined(path []parser.Node) bool {
	return slices.ContainsFunc(path, func(n parser.Node) bool {
		b, ok := n.(*parser.BinaryExpr)
		if !ok || b.Op != parser.LAND {
			return false
		}
		r, ok := b.RHS.(*parser.VectorSelector)
		return ok && r.Name == "target_info"
	})
}
