package main

import (
	"slices"
	"strings"
	"testing"
)

func TestMutations(t *testing.T) {
	const script = "local a = b + 1 -- not c + d\nif a <= 0 then return a + b + c end\n"
	var got []string
	for _, r := range replacements() {
		for _, c := range mutations("s.lua", script, r) {
			lines := strings.Split(string(c.text), "\n")
			got = append(got, lines[c.line-1])
		}
	}
	slices.Sort(got)
	want := []string{
		"if a < 0 then return a + b + c end",
		"if a <= 0 then return a + b - c end",
		"if a <= 0 then return a - b + c end",
		"if a <= 0 then return nil end",
		"if a <= 1 then return a + b + c end",
		"local a = b + 2 -- not c + d",
		"local a = b - 1 -- not c + d",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestAccepted: every line of the list has its reason.
func TestAccepted(t *testing.T) {
	lines := 0
	for line := range strings.Lines(acceptedText) {
		if !strings.HasPrefix(line, "#") {
			lines++
		}
	}
	if got := len(accepted()); got != lines {
		t.Errorf("%d of %d lines have a file, a kind, a source line and a reason", got, lines)
	}
}

func TestReport(t *testing.T) {
	many := func(n int, status string) []mutant {
		all := make([]mutant, n)
		for i := range all {
			all[i].status = status
		}
		return all
	}
	for _, row := range []struct {
		killed, lived, timedOut int
		ok                      bool
	}{{98, 2, 2, true}, {80, 20, 0, true}, {79, 21, 0, false}, {97, 3, 3, false}, {0, 0, 0, false}} {
		r := &run{mutants: slices.Concat(many(row.killed, killed), many(row.lived, lived), many(row.timedOut, timedOut))}
		if err := r.report(); (err == nil) != row.ok {
			t.Errorf("%+v: %v", row, err)
		}
	}
}
