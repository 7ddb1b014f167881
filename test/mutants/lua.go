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
	"strings"
	"time"
)

// replacement is a way to change a script.
type replacement struct {
	kind string
	from *regexp.Regexp
	to   string
}

func replacements() []replacement {
	var all []replacement
	for _, r := range [][3]string{
		{"BOUNDARY", ` < `, ` <= `},
		{"BOUNDARY", ` <= `, ` < `},
		{"BOUNDARY", ` > `, ` >= `},
		{"BOUNDARY", ` >= `, ` > `},
		{"NEGATION", ` == `, ` ~= `},
		{"NEGATION", ` ~= `, ` == `},
		{"NEGATION", ` < `, ` >= `},
		{"NEGATION", ` > `, ` <= `},
		{"NEGATION", `\bif not `, `if `},
		{"LOGICAL", ` and `, ` or `},
		{"LOGICAL", ` or `, ` and `},
		{"ARITHMETIC", ` \+ `, ` - `},
		{"ARITHMETIC", ` - `, ` + `},
		{"ARITHMETIC", ` \* `, ` / `},
		{"ARITHMETIC", ` / `, ` * `},
		{"EXTREME", `math\.min\(`, `math.max(`},
		{"EXTREME", `math\.max\(`, `math.min(`},
		{"EXTREME", `math\.floor\(`, `math.ceil(`},
		{"EXTREME", `math\.ceil\(`, `math.floor(`},
		{"CONSTANT", `\btrue\b`, `false`},
		{"CONSTANT", `\bfalse\b`, `true`},
		{"CONSTANT", ` 0\b`, ` 1`},
		{"CONSTANT", ` 1\b`, ` 2`},
		{"RETURN", `\breturn [^,]+? end$`, `return nil end`},
	} {
		all = append(all, replacement{r[0], regexp.MustCompile(r[1]), r[2]})
	}
	return all
}

// scriptTests are the tests of the scripts on a real Redis: the conformance suite, its
// programs, and damaged data.
const (
	scriptTests   = "^Test(Conformance|Programs|Damaged)"
	scriptTimeout = time.Minute
)

// change is one mutant of a script before it is tried.
type change struct {
	mutant
	text []byte // the whole file
}

// lua mutates limiter/redisstore/lua.
func (r *run) lua(_ string, limit time.Duration) error {
	changes, err := luaChanges(filepath.Join(r.copy, "limiter", "redisstore", "lua"))
	if err != nil {
		return err
	}
	shuffle(r.seed, changes)
	if status, out := r.tryScripts(); status != lived {
		return fmt.Errorf("the tests fail without any mutant:\n%s", lastLines(out))
	}
	began := time.Now()
	for _, c := range changes {
		if time.Since(began) > limit {
			break
		}
		whole, err := os.ReadFile(c.file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.file, c.text, 0o644); err != nil {
			return err
		}
		c.status, _ = r.tryScripts()
		if err := os.WriteFile(c.file, whole, 0o644); err != nil {
			return err
		}
		if c.file, err = filepath.Rel(r.copy, c.file); err != nil {
			return err
		}
		r.mutants = append(r.mutants, c.mutant)
	}
	return nil
}

// tryScripts runs the tests once. A script that does not compile is killed too.
func (r *run) tryScripts() (status string, out []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*scriptTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-vet=off", "-timeout", scriptTimeout.String(), "-run", scriptTests, "./limiter/redisstore", "-rapid.shrinktime=1s")
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

// luaChanges are all mutants of all scripts, in order.
func luaChanges(folder string) ([]change, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.lua"))
	if err == nil && len(files) == 0 {
		err = errors.New("no scripts in " + folder)
	}
	var all []change
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, r := range replacements() {
			all = append(all, mutations(file, string(text), r)...)
		}
	}
	return all, err
}

// mutations are those of one kind in one script. Comments stay as they are.
func mutations(file, text string, r replacement) (all []change) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		code, _, _ := strings.Cut(line, "--")
		for _, at := range r.from.FindAllStringIndex(code, -1) {
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
