package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"
)

// toy is a module of one function, an embedded file, and tests of every sort.
func toy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module toy\n\ngo 1.26\n")
	write(t, dir, "limit/limit.go", `package limit

import _ "embed"

//go:embed edge.lua
var Edge string

func Over(used, most int) bool { return used > most }
`)
	write(t, dir, "limit/edge.lua", "return used > most\n")
	write(t, dir, "limit/limit_test.go", `package limit

import (
	"testing"
	"time"
)

func TestEdge(t *testing.T) {
	t.Run("at", func(t *testing.T) {
		if Over(5, 5) {
			t.Error("five of five are too many")
		}
	})
	t.Run("beyond", func(t *testing.T) {
		if !Over(6, 5) {
			t.Error("six of five are not too many")
		}
	})
}

func TestScript(t *testing.T) {
	if Edge != "return used > most\n" {
		t.Error("another script")
	}
}

func TestCrashes(t *testing.T) { _ = []int{1}[index()] }

func index() int {
	if Over(5, 5) {
		return 5
	}
	return 0
}

func TestHangs(t *testing.T) {
	for Over(5, 5) {
		time.Sleep(time.Hour)
	}
}

func TestNeverPasses(t *testing.T) { t.Error("as always") }

func TestSkips(t *testing.T) { t.Skip("not today") }
`)
	return dir
}

// TestFates plants mistakes of which it is known what becomes of them. It is the
// proof that a mutant which nobody notices is told, and that none is called killed for
// any other reason than a test that failed by an assertion.
func TestFates(t *testing.T) {
	const source, script = "limit/limit.go", "limit/edge.lua"
	edge := func(name string, killers ...string) mutant {
		return mutant{name: name, breaks: "five of five are fine", file: source, old: "used > most", becomes: "used >= most", killers: by("limit", killers...)}
	}
	rows := []struct {
		m    mutant
		fate fate
		says string
	}{
		{edge("noticed", "TestEdge"), killed, ""},
		{edge("noticed-by-a-subtest", "TestEdge/at"), killed, ""},
		{edge("unnoticed", "TestScript"), survived, "limit TestScript passed"},
		{edge("unnoticed-by-the-other-subtest", "TestEdge/beyond"), survived, "limit TestEdge/beyond passed"},
		{edge("noticed-by-one-of-two", "TestEdge", "TestScript"), survived, "limit TestScript passed"},
		{mutant{name: "embedded", breaks: "as it is", file: script, old: ">", becomes: ">=", killers: by("limit", "TestScript")}, killed, ""},
		{mutant{name: "no-program", breaks: "nothing", file: source, old: "used > most", becomes: "used > many", killers: by("limit", "TestEdge")}, wrong, "undefined: many"},
		{mutant{name: "not-there", breaks: "nothing", file: source, old: "used < most", becomes: "true", killers: by("limit", "TestEdge")}, wrong, "does not stand in"},
		{edge("crash", "TestCrashes"), wrong, "limit TestCrashes panicked instead of failing by an assertion"},
		{edge("endless", "TestHangs"), wrong, "limit TestHangs hung instead of failing by an assertion"},
		{edge("fails-anyway", "TestNeverPasses"), wrong, "without a mutant limit TestNeverPasses failed"},
		{edge("skipped", "TestSkips"), wrong, "without a mutant limit TestSkips was skipped or is not there"},
		{edge("no-such-test", "TestNothing"), wrong, "without a mutant limit TestNothing was skipped or is not there"},
		{edge("no-test"), wrong, "names no test"},
	}
	ms := make([]mutant, len(rows))
	for i := range rows {
		ms[i] = rows[i].m
	}
	var out bytes.Buffer
	code, err := trials(context.Background(), toy(t), ms, 2, 5*time.Second, &out)
	if err != nil || code != 1 {
		t.Errorf("exit code %d, %v; want 1", code, err)
	}
	told := out.String()
	for i, row := range rows {
		head := regexp.MustCompile(`(?m)^` + string(row.fate) + ` +` + row.m.name + ` .*$`).FindStringIndex(told)
		if head == nil {
			t.Errorf("%s is not told as %s", row.m.name, row.fate)
			continue
		}
		text := told[head[0]:]
		if i+1 < len(rows) {
			if end := strings.Index(text, " "+rows[i+1].m.name+" "); end > 0 {
				text = text[:end]
			}
		}
		again := "again: make mutants MUTANT=" + row.m.name + "\n"
		if !strings.Contains(text, row.says) || strings.Contains(text, again) == (row.fate == killed) {
			t.Errorf("%s is told as\n%s", row.m.name, text)
		}
	}
	if want := "3 of 14 killed, 3 survived: no test guards what they break, 8 wrong: the table has to be mended"; !strings.Contains(told, want) {
		t.Errorf("the sum is not %q", want)
	}
	if t.Failed() {
		t.Log(told)
	}
}

// When all are killed the exit code says so, and one alone is shown with what its test
// said.
func TestOneAlone(t *testing.T) {
	m := mutant{name: "noticed", breaks: "five of five are fine", file: "limit/limit.go", old: "used > most", becomes: "used >= most", killers: by("limit", "TestEdge")}
	var out bytes.Buffer
	if code, err := trials(context.Background(), toy(t), []mutant{m}, 2, 10*time.Second, &out); err != nil || code != 0 {
		t.Errorf("exit code %d, %v; want 0", code, err)
	}
	for _, want := range []string{"five of five are too many", "- used > most", "+ used >= most", "1 of 1 killed ("} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-list", "epoch-ignored"}, 0, "epoch-ignored  totals of different epochs are different totals (sync/ledger/cells.go)"},
		{[]string{"no-such-mutant"}, 2, `there is no mutant "no-such-mutant"`},
		{[]string{"-p", "0"}, 2, "-p is at least 1"},
		{[]string{"-unknown"}, 2, "usage: go run ./test/mutants"},
		{[]string{"-h"}, 0, "usage: go run ./test/mutants"},
	} {
		var out, complaints bytes.Buffer
		code := command(context.Background(), row.args, &out, &complaints)
		if said := out.String() + complaints.String(); code != row.code || !strings.Contains(said, row.says) {
			t.Errorf("%q: exit code %d, want %d:\n%s", row.args, code, row.code, said)
		}
	}
}
