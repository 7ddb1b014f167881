package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// replacement is a way to change a line of code.
type replacement struct {
	kind string
	from *regexp.Regexp
	to   string
}

func replacements(more [][3]string) (all []replacement) {
	for _, r := range append([][3]string{
		{"BOUNDARY", ` < `, ` <= `},
		{"BOUNDARY", ` <= `, ` < `},
		{"BOUNDARY", ` > `, ` >= `},
		{"BOUNDARY", ` >= `, ` > `},
		{"NEGATION", ` < `, ` >= `},
		{"NEGATION", ` > `, ` <= `},
		{"ARITHMETIC", ` \+ `, ` - `},
		{"ARITHMETIC", ` - `, ` + `},
		{"ARITHMETIC", ` \* `, ` / `},
		{"ARITHMETIC", ` / `, ` * `},
		{"CONSTANT", `\btrue\b`, `false`},
		{"CONSTANT", `\bfalse\b`, `true`},
	}, more...) {
		all = append(all, replacement{r[0], regexp.MustCompile(r[1]), r[2]})
	}
	return all
}

// language is how files are mutated.
type language struct {
	suffix, comment string
	replacements    []replacement
}

func lua() language {
	return language{".lua", "--", replacements([][3]string{
		{"NEGATION", ` == `, ` ~= `},
		{"NEGATION", ` ~= `, ` == `},
		{"NEGATION", `\bif not `, `if `},
		{"LOGICAL", ` and `, ` or `},
		{"LOGICAL", ` or `, ` and `},
		{"EXTREME", `math\.min\(`, `math.max(`},
		{"EXTREME", `math\.max\(`, `math.min(`},
		{"EXTREME", `math\.floor\(`, `math.ceil(`},
		{"EXTREME", `math\.ceil\(`, `math.floor(`},
		{"CONSTANT", ` 0\b`, ` 1`},
		{"CONSTANT", ` 1\b`, ` 2`},
		{"RETURN", `\breturn [^,]+? end$`, `return nil end`},
	})}
}

func golang() language {
	return language{".go", "//", replacements([][3]string{
		{"NEGATION", ` == `, ` != `},
		{"NEGATION", ` != `, ` == `},
		{"NEGATION", `\bif !`, `if `},
		{"LOGICAL", ` && `, ` || `},
		{"LOGICAL", ` \|\| `, ` && `},
		{"EXTREME", `\bmin\(`, `max(`},
		{"EXTREME", `\bmax\(`, `min(`},
	})}
}

// target is what is mutated, and the tests that should notice.
type target struct {
	name     string  // of a package, from the module's root, or lua
	share    float64 // of the time
	folder   string
	language language
	tests    []string // arguments of go test
}

// targets are the Go packages whose arithmetic decides, and the scripts on a real Redis: the conformance suite, its programs, and
// damaged data.
func targets() (all []target) {
	for _, p := range []struct {
		name  string
		share float64
	}{{"quota", 0.1}, {"sync/ledger", 0.2}, {"region/view", 0.2}, {"limiter", 0.1}, {"limiter/memstore", 0.05}, {"limiter/redisstore", 0.1}, {"limiter/redisstore/queue", 0.05}} {
		all = append(all, target{p.name, p.share, p.name, golang(), []string{"./" + p.name}})
	}
	return append(all, target{
		"lua", 0.2, "limiter/redisstore/lua", lua(),
		[]string{"-run", "^Test(Conformance|Programs|Damaged)", "./limiter/redisstore", "-rapid.shrinktime=1s"},
	})
}

// change is one mutant before it is tried.
type change struct {
	mutant
	text []byte // the whole file
}

// mutate tries mutants of a target for about so long.
func (r *run) mutate(t *target, limit time.Duration) error {
	began := time.Now()
	covered := filepath.Join(r.copy, "covered")
	if status, out := r.try(t, time.Minute*10, "-coverprofile="+covered); status != lived {
		return fmt.Errorf("the tests fail without any mutant:\n%s", lastLines(out))
	}
	patience := time.Minute + 3*time.Since(began)
	changes, err := t.changes(r.copy, covered)
	if err != nil {
		return err
	}
	shuffle(r.seed, changes)
	for _, c := range changes {
		if time.Since(began) > limit {
			break
		}
		file := filepath.Join(r.copy, c.file)
		whole, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, c.text, 0o644)
		}
		if err != nil {
			return err
		}
		var out []byte
		c.status, out = r.try(t, patience)
		if err := os.WriteFile(file, whole, 0o644); err != nil {
			return err
		}
		if !strings.Contains(string(out), "[build failed]") {
			r.mutants = append(r.mutants, c.mutant)
		}
	}
	return nil
}

// try runs the tests of a target once. A script that does not load is killed too.
func (r *run) try(t *target, patience time.Duration, flags ...string) (status string, out []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Minute)
	defer cancel()
	args := slices.Concat([]string{"test", "-count=1", "-failfast", "-vet=off", "-timeout", patience.String()}, flags, t.tests)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.copy
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return lived, out
	case ctx.Err() != nil || strings.Contains(string(out), "panic: test timed out"):
		return timedOut, out
	}
	return killed, out
}

// changes are all mutants of a target's files, in order; of Go those in lines that the profile has as covered.
func (t *target) changes(root, profile string) (all []change, err error) {
	files, err := filepath.Glob(filepath.Join(root, t.folder, "*"+t.language.suffix))
	if err == nil && len(files) == 0 {
		err = errors.New("no files in " + t.folder)
	}
	blocks, _ := os.ReadFile(profile) // its absence leaves no mutant of Go
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := filepath.Join(t.folder, filepath.Base(path))
		lines := coveredLines(string(blocks), name)
		for _, rep := range t.language.replacements {
			for _, c := range mutations(name, string(text), t.language.comment, rep) {
				if t.language.suffix != ".go" || lines[c.line] {
					all = append(all, c)
				}
			}
		}
	}
	return all, err
}

// coveredLines are those of a file in blocks of a profile of coverage that were run: "path/name.go:first.column,last.column statements runs".
func coveredLines(profile, name string) map[int]bool {
	lines := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)/`+regexp.QuoteMeta(name)+`:(\d+)\.\d+,(\d+)\.\d+ \d+ [1-9]`).FindAllStringSubmatch(profile, -1) {
		first, _ := strconv.Atoi(m[1])
		last, _ := strconv.Atoi(m[2])
		for n := first; n <= last; n++ {
			lines[n] = true
		}
	}
	return lines
}

// mutations are those of one kind in one file. Comments and texts stay as they are.
func mutations(file, text, comment string, r replacement) (all []change) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		code, _, _ := strings.Cut(line, comment)
		for _, at := range r.from.FindAllStringIndex(code, -1) {
			if strings.Count(code[:at[0]], `"`)%2 == 1 {
				continue
			}
			changed := slices.Clone(lines)
			changed[i] = line[:at[0]] + r.to + line[at[1]:]
			all = append(all, change{
				mutant: mutant{file: file, line: i + 1, source: strings.TrimSpace(line), kind: r.kind},
				text:   []byte(strings.Join(changed, "\n")),
			})
		}
	}
	return all
}
