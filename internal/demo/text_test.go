package demo_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/internal/demo"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got, -update writes it anew):\n%s", file, diff)
	}
}

func fresh(names ...string) []demo.Peer {
	var peers []demo.Peer
	for _, name := range names {
		peers = append(peers, demo.Peer{Region: name, State: "fresh", Heard: 120 * time.Millisecond})
	}
	return peers
}

func TestTable(t *testing.T) {
	whole := []demo.Row{
		{Region: "eu-west", Allowed: 5, Denied: 1, Used: []int64{301, 198, 101}, Ceiling: 301, Strict: 51, Mode: "global", Peers: fresh("us-east", "ap-south")},
		{Region: "us-east", Allowed: 4, Used: []int64{300, 199, 101}, Ceiling: 199, Mode: "global", Peers: fresh("eu-west", "ap-south")},
		{Region: "ap-south", Allowed: 2, Used: []int64{300, 198, 102}, Ceiling: 102, Mode: "global", Peers: fresh("eu-west", "us-east")},
	}
	silent := demo.Peer{Region: "us-east", State: "silent", Heard: 12400 * time.Millisecond}
	cut := []demo.Row{
		{
			Region: "eu-west", Denied: 6, Used: []int64{301, 12, 0}, Ceiling: 200, Mode: "partitioned", Reason: "peer_silent",
			Peers: []demo.Peer{silent, {Region: "ap-south", State: "dead", Heard: 83 * time.Second}},
		},
		{
			Region: "us-east", Used: []int64{0, 4, 0}, Ceiling: 200, Mode: "joining", Reason: "joining",
			Peers: []demo.Peer{{Region: "eu-west", State: "never_seen", Heard: -time.Millisecond}, {Region: "ap-south", State: "joining", Heard: 300 * time.Millisecond}},
		},
		whole[2],
	}
	golden(t, "table", demo.Table(whole, demo.Worst{Estimated: 690, Strict: 100}, nil, false)+"\n"+demo.Table(cut, demo.Worst{}, []string{"eu-west"}, true)+
		"\n"+demo.Table(whole, demo.Worst{}, []string{"eu-west", "us-east"}, false))
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
	fits(t, text, strings.Count(text, "\n"))
	fits(t, other, strings.Count(other, "\n"))
	golden(t, "banner", text+other)
}

func TestScenarioText(t *testing.T) {
	var b strings.Builder
	for _, c := range []demo.Change{
		{Region: "eu-west", Off: true, Changed: true, Cut: []string{"eu-west"}},
		{Region: "eu-west", Off: true, Cut: []string{"eu-west"}},
		{Region: "ap-south", Off: true, Changed: true, Cut: []string{"eu-west", "ap-south"}},
		{Region: "us-east", Off: true, Changed: true, Cut: []string{"eu-west", "us-east", "ap-south"}},
		{Region: "us-east", Changed: true, Cut: []string{"eu-west", "ap-south"}},
		{Region: "eu-west", Changed: true},
		{Region: "eu-west"},
	} {
		c.Regions = demo.Regions()
		text := c.Scenario("regiond", 8181)
		fits(t, text, strings.Count(text, "\n"))
		fmt.Fprintf(&b, "== %+v\n%s\n", c, text)
	}
	golden(t, "scenario", b.String())
}
