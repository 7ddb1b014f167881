package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// lab builds and runs the tests of one module. Safe for concurrent use.
type lab struct {
	root  string        // the folder of go.mod, absolute
	tmp   string        // for binaries and mutated files, absolute
	limit time.Duration // that a test may take
	count atomic.Int64  // of names in tmp
}

// ending is how a test ended.
type ending string

const (
	passed   ending = "passed"
	failed   ending = "failed" // an assertion did not hold
	panicked ending = "panicked"
	hung     ending = "hung"
	absent   ending = "was skipped or is not there"
)

// path is a new name in tmp.
func (l *lab) path(kind string) string {
	return filepath.Join(l.tmp, fmt.Sprintf("%d.%s", l.count.Add(1), kind))
}

// build makes the test binary of a package, with the file replaced by content
// unless that is nil. An *exec.ExitError comes with what the compiler said.
func (l *lab) build(ctx context.Context, dir, file string, content []byte) (binary, said string, err error) {
	binary = l.path("test")
	// Neither the vet that go test adds nor symbols for a debugger are worth their time.
	args := []string{"test", "-c", "-vet=off", "-buildvcs=false", "-ldflags=-s -w", "-o", binary}
	if content != nil {
		overlay, err := l.overlay(file, content)
		if err != nil {
			return "", "", fmt.Errorf("write the mutant: %w", err)
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+dir)...)
	cmd.Dir = l.root
	out, err := cmd.CombinedOutput()
	return binary, string(out), err
}

// overlay writes what tells the go command to read content for file.
func (l *lab) overlay(file string, content []byte) (string, error) {
	mutated := l.path("mutated")
	if err := os.WriteFile(mutated, content, 0o600); err != nil {
		return "", err
	}
	var replace struct{ Replace map[string]string }
	replace.Replace = map[string]string{filepath.Join(l.root, filepath.FromSlash(file)): mutated}
	text, err := json.Marshal(replace)
	if err != nil {
		return "", err
	}
	name := l.path("json")
	return name, os.WriteFile(name, text, 0o600)
}

// run runs one test in its package's folder.
func (l *lab) run(ctx context.Context, binary string, p proof) (ending, string, error) {
	dir := filepath.Join(l.root, filepath.FromSlash(p.dir))
	s, err := readSuite(dir)
	if err != nil {
		return "", "", err
	}
	args := []string{"-test.v", "-test.count=1", "-test.run=" + pattern(p.test), "-test.timeout=" + l.limit.String()}
	if s.rapid {
		args = append(args, "-rapid.nofailfile", "-rapid.shrinktime=1ms")
	}
	// The binary's own limit comes first, and says where the test hangs.
	ctx, cancel := context.WithTimeout(ctx, l.limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+l.tmp)
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if e := (*exec.ExitError)(nil); err != nil && !errors.As(err, &e) && ctx.Err() == nil {
		return "", out.String(), fmt.Errorf("run %s: %w", p, err)
	}
	return judge(p.test, out.String(), err == nil), out.String(), nil
}

// pattern is the -run that matches one test: "^TestCeiling$/^share$".
func pattern(test string) string {
	levels := strings.Split(test, "/")
	for i := range levels {
		levels[i] = "^" + regexp.QuoteMeta(levels[i]) + "$"
	}
	return strings.Join(levels, "/")
}

var (
	panics   = regexp.MustCompile(`(?m)^(panic: |fatal error: |.*\[rapid\] panic after )`)
	timeouts = regexp.MustCompile(`(?m)^panic: test timed out after `)
)

// judge reads what go test -v said of a test.
func judge(test, said string, ok bool) ending {
	verdict := func(word string) bool {
		return regexp.MustCompile(`(?m)^\s*--- ` + word + `: ` + regexp.QuoteMeta(test) + ` \(`).MatchString(said)
	}
	switch {
	case timeouts.MatchString(said):
		return hung
	case panics.MatchString(said):
		return panicked
	case verdict("FAIL"):
		return failed
	case ok && verdict("PASS"):
		return passed
	case ok || verdict("SKIP"):
		return absent
	}
	return panicked // it ended without a word
}
