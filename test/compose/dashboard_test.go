//go:build compose

package compose

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// without are the panels of the dashboard that have nothing to show here: no limit of
// topology.yaml has a bound, and no check is turned away.
var without = []string{"Lent and borrowed", "Beyond a bound", "Turned away"}

// dashboard asks Prometheus what the panels of deploy/grafana/regiond.json ask, of all regions,
// until each has something to show.
func dashboard(t *testing.T, prometheus string) {
	text, err := os.ReadFile("../../deploy/grafana/regiond.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	chosen := strings.NewReplacer("$job", "regiond", "$region", ".*", "$policy", ".*", "$__rate_interval", "20s")
	panels := 0
	for _, p := range d.Panels {
		if p.Type == "row" || slices.Contains(without, p.Title) {
			continue
		}
		panels++
		within(t, measured, "the panel "+p.Title+" has something to show", func() (bool, string) {
			series := 0
			for _, target := range p.Targets {
				n, err := query(prometheus, chosen.Replace(target.Expr))
				if err != nil {
					t.Fatalf("%s: %s: %v", p.Title, target.Expr, err)
				}
				series += n
			}
			return series > 0, fmt.Sprint(series, " series")
		})
	}
	if panels < 30 {
		t.Errorf("only %d panels", panels)
	}
}

// measured is when the overshoot is known of a window of a minute in which a limit was used: when
// the next aligned window is over, and Prometheus has read it.
const measured = 2*time.Minute + timeout

// query returns how many series the result of an expression has.
func query(prometheus, expr string) (int, error) {
	resp, err := http.Get(prometheus + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var a struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return 0, err
	}
	if a.Error != "" {
		return 0, errors.New(a.Error)
	}
	return len(a.Data.Result), nil
}
