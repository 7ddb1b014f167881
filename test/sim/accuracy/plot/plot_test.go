package plot_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/test/sim/accuracy/plot"
)

func ticks(values ...float64) []plot.Tick {
	var all []plot.Tick
	for _, v := range values {
		all = append(all, plot.Tick{At: v, Label: strconv.FormatFloat(v, 'g', -1, 64)})
	}
	return all
}

func charts() map[string]string {
	lines := plot.Lines{
		Title: "Over & under <the limit>",
		X:     plot.Axis{Name: "window, s", Ticks: ticks(1, 10, 100), Log: true},
		Y:     plot.Axis{Name: "over, %", Ticks: ticks(0, 5, 10)},
		Mark:  5, MarkName: "promised",
		Series: []plot.Series{
			{Name: "near", Points: []plot.Point{{X: 1, Y: 2}, {X: 10, Y: 4}, {X: 100, Y: 20}}},
			{Name: "far", Points: []plot.Point{{X: 1, Y: 10}, {X: 100, Y: 0}}},
			{Name: "third"},
			{Name: "fourth", Points: []plot.Point{{X: 10, Y: 5}}},
		},
	}
	bare := lines
	bare.Bare, bare.MarkName = true, ""
	dots := plot.Dots{
		Title: "By demand", X: plot.Axis{Name: "over, %", Ticks: ticks(0, 10)}, Series: []string{"two", "eleven"},
		Rows: []plot.Row{{Name: "steady", Values: []float64{3, 1}}, {Name: "moving", Values: []float64{10, 1}}},
	}
	return map[string]string{"lines": lines.SVG(), "bare": bare.SVG(), "dots": dots.SVG()}
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestChartsAreAsTheyWere: who writes them anew looks at them too.
func TestChartsAreAsTheyWere(t *testing.T) {
	for name, got := range charts() {
		path := filepath.Join("testdata", name+".svg")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s changed (- was, + is):\n%s", path, diff)
		}
	}
}

// TestChartsAreWhole: well-formed XML with no script, everything that was named is
// in it, nothing lies outside, and both kinds of light are served.
func TestChartsAreWhole(t *testing.T) {
	place := regexp.MustCompile(` c?[xy][12]?="([-0-9.]+)"`)
	for name, svg := range charts() {
		words := ""
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			switch e := token.(type) {
			case xml.StartElement:
				if e.Name.Local == "script" || e.Name.Local == "foreignObject" {
					t.Errorf("%s: has a %s", name, e.Name.Local)
				}
			case xml.CharData:
				words += string(e) + "\n"
			}
		}
		wanted := map[string][]string{
			"lines": {"Over & under <the limit>", "window, s", "over, %", "near", "far", "100", "promised"},
			"bare":  {"near", "fourth"},
			"dots":  {"By demand", "steady", "moving", "eleven", "over, %"},
		}
		for _, want := range append(wanted[name], "prefers-color-scheme:dark") {
			if !strings.Contains(words, want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
		for _, m := range place.FindAllStringSubmatch(svg, -1) {
			if v, err := strconv.ParseFloat(m[1], 64); err != nil || v < 0 || v > 760 {
				t.Errorf("%s: something is at %s", name, m[1])
			}
		}
	}
}

// TestPlaces: a value stands where its distance, or on a log axis its ratio, to
// the ends says. Circles are markers of the first series.
func TestPlaces(t *testing.T) {
	circle := regexp.MustCompile(`<circle cx="([0-9.]+)" cy="([0-9.]+)"`)
	found := circle.FindAllStringSubmatch(charts()["lines"], -1)
	found = found[1:] // the first is in the legend
	if len(found) != 3 {
		t.Fatalf("%d markers of the first series, want 3", len(found))
	}
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	x0, x1, x2 := number(found[0][1]), number(found[1][1]), number(found[2][1])
	if d := (x1 - x0) - (x2 - x1); d < -0.2 || d > 0.2 {
		t.Errorf("1, 10 and 100 stand at %v, %v, %v of an axis by ratio", x0, x1, x2)
	}
	y2, y4, beyond := number(found[0][2]), number(found[1][2]), number(found[2][2])
	const high, low = 66, 324
	if beyond != high || y2-y4 < 51.5 || y2-y4 > 51.7 || low-y2 < 51.5 || low-y2 > 51.7 {
		t.Errorf("2, 4 and 20 of 10 stand at heights %v, %v, %v", y2, y4, beyond)
	}
}
