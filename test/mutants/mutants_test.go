package main

import (
	"slices"
	"strings"
	"testing"
)

func TestMutations(t *testing.T) {
	const script = "local a = b + 1 -- not c + d\nif a <= 0 then return a + b + c end\n"
	var got []string
	for _, r := range lua().replacements {
		for _, c := range mutations("s.lua", script, "--", r) {
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
