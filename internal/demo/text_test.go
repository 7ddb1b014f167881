package demo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/regiond/regiond/internal/demo"
	"github.com/regiond/regiond/test/golden"
)

func TestTable(t *testing.T) {
	whole := &demo.PageState{
		Tenant: demo.Busy, Strict: demo.Strict, Units: demo.BusyUnits, Most: demo.Most{Estimated: 690, Strict: 100},
		Regions: []demo.PageSite{
			{Region: "eu-west", Mode: "global", Used: 301, Ceiling: 301, Strict: 51, Fresh: []string{"us-east", "ap-south"}},
			{Region: "us-east", Mode: "global", Used: 199, Ceiling: 199, Fresh: []string{"eu-west", "ap-south"}},
			{Region: "ap-south", Mode: "global", Used: 102, Ceiling: 102, Fresh: []string{"eu-west", "us-east"}},
		},
	}
	cut := *whole
	cut.Quiet, cut.Cut, cut.Regions = true, []string{"eu-west", "us-east"}, []demo.PageSite{
		{Region: "eu-west", Mode: "partitioned", Reason: "peer_silent", Used: 301, Ceiling: 200},
		{Region: "us-east", Mode: "joining", Reason: "joining", Used: 4, Ceiling: 200, Fresh: []string{"ap-south"}},
		whole.Regions[2],
	}
	for _, text := range []string{demo.Table(whole), demo.Table(&cut)} {
		fits(t, text, 7)
	}
	golden.Compare(t, "table.golden", demo.Table(whole)+"\n"+demo.Table(&cut))
}

func fits(t *testing.T, text string, lines int) {
	if n := strings.Count(text, "\n"); n != lines {
		t.Fatalf("%d lines, want %d:\n%s", n, lines, text)
	}
	for line := range strings.Lines(text) {
		if len(line) > demo.Width+1 {
			t.Fatalf("%d columns:\n%s", len(line)-1, line)
		}
	}
}

func TestBanner(t *testing.T) {
	text := demo.Banner("go run ./cmd/regiond", demo.DefaultPort)
	other := demo.Banner("go run ./cmd/regiond", 18081)
	fits(t, text, 6) // the address, three lines, and two that are empty
	fits(t, other, 6)
	golden.Compare(t, "banner.golden", text+other)
}

func TestScenarioText(t *testing.T) {
	var b strings.Builder
	for _, c := range []demo.Change{
		{Region: "eu-west", Off: true, Cut: []string{"eu-west"}},
		{Region: "ap-south", Off: true, Cut: []string{"eu-west", "ap-south"}},
		{Region: "us-east", Cut: []string{"eu-west", "ap-south"}},
		{Region: "eu-west"},
	} {
		text := c.Scenario("regiond", 8181)
		fits(t, text, strings.Count(text, "\n"))
		fmt.Fprintf(&b, "== %+v\n%s\n", c, text)
	}
	golden.Compare(t, "scenario.golden", b.String())
}
