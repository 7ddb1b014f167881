package main

import (
	"cmp"
	"encoding/json"
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

// options of every call of gremlins. Mutants of ++ and -- make endless loops, which
// time out and prove nothing. One worker, because tests run in parallel themselves.
var options = []string{"--workers", "1", "--increment-decrement=false", "--invert-logical", "--exclude-files", "limitertest/"}

// minTimeout is the least that a mutant's tests may take: gremlins gives them a multiple
// of the time that they took once.
const minTimeout = 60 * time.Second

// goPackage mutates one package, without those below it. gremlins does not sample, but
// it can restrict itself to the lines that a commit has changed. So a dry run lists the
// mutants, and a repository of that folder gets two commits: one without the lines of
// the sample, which nobody builds, and one with them.
func (r *run) goPackage(name string, limit time.Duration) error {
	began := time.Now()
	out, err := r.call(name, "--dry-run")
	if err != nil {
		return err
	}
	once := time.Since(began)
	type place struct {
		file string
		line int
	}
	var lines []place          // in the order of the package, so that the seed decides
	mutants := map[place]int{} // on each line
	for _, m := range regexp.MustCompile(`(?m)RUNNABLE \w+ at (\w+\.go):(\d+):\d+$`).FindAllStringSubmatch(out, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return err
		}
		p := place{m[1], n}
		if mutants[p]++; mutants[p] == 1 {
			lines = append(lines, p)
		}
	}
	slices.SortFunc(lines, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	shuffle(r.seed, lines)
	sample, size := map[string][]int{}, 0
	// The tests of a killed mutant end early, and building is most of what remains.
	for budget := int((limit - 2*once) / max(once*2/3, time.Second)); len(lines) > 0 && size < budget; lines = lines[1:] {
		sample[lines[0].file] = append(sample[lines[0].file], lines[0].line)
		size += mutants[lines[0]]
	}
	if size == 0 {
		return fmt.Errorf("its tests take %v, too long for %v", once, limit)
	}
	if err := r.commitWithout(name, sample); err != nil {
		return err
	}
	report := filepath.Join(r.copy, "report.json")
	coefficient := strconv.Itoa(3 + int(minTimeout/max(once, time.Second)))
	if _, err := r.call(name, "--diff", "HEAD~1", "--timeout-coefficient", coefficient, "--output", report); err != nil {
		return err
	}
	return r.read(name, report)
}

// call runs gremlins on a package of the copy.
func (r *run) call(name string, args ...string) (string, error) {
	cmd := exec.Command(r.gremlins, slices.Concat([]string{"unleash"}, options, args, []string{"./" + name})...) //nolint:noctx // Ctrl-C reaches it too
	cmd.Dir = r.copy
	folder := filepath.Join(r.copy, name)
	// With -count=1 the time that the tests take once is not that of a cached result.
	cmd.Env = append(os.Environ(), "GIT_DIR="+filepath.Join(folder, ".git"), "GIT_WORK_TREE="+folder, "GOFLAGS=-count=1 -vet=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gremlins: %w\n%s", err, lastLines(out))
	}
	return string(out), nil
}

// commitWithout makes the two commits.
func (r *run) commitWithout(name string, sample map[string][]int) error {
	folder := filepath.Join(r.copy, name)
	git := func(args ...string) error {
		args = append([]string{"-C", folder, "-c", "user.name=mutants", "-c", "user.email=mutants@localhost"}, args...)
		out, err := exec.Command("git", args...).CombinedOutput() //nolint:noctx // short
		if err != nil {
			return fmt.Errorf("git %v: %w\n%s", args, err, out)
		}
		return nil
	}
	whole := map[string][]byte{}
	for file, lines := range sample {
		data, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			return err
		}
		whole[file] = data
		var kept []string
		for i, line := range strings.SplitAfter(string(data), "\n") {
			if !slices.Contains(lines, i+1) {
				kept = append(kept, line)
			}
		}
		if err := os.WriteFile(filepath.Join(folder, file), []byte(strings.Join(kept, "")), 0o644); err != nil {
			return err
		}
	}
	err := errors.Join(git("init", "-q"), git("add", "-A"), git("commit", "-qm", "without the sample"))
	for file, data := range whole {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, file), data, 0o644))
	}
	return errors.Join(err, git("commit", "-qam", "with the sample"))
}

// read adds the mutants in a report of gremlins.
func (r *run) read(name, report string) error {
	data, err := os.ReadFile(report)
	if err != nil {
		return err
	}
	var result struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Type, Status string
				Line         int
			}
		}
	}
	if err := json.Unmarshal(data, &result); err != nil {
		return err
	}
	for _, f := range result.Files {
		file := filepath.Join(name, f.Name)
		text, err := os.ReadFile(filepath.Join(r.copy, file))
		if err != nil {
			return err
		}
		lines := strings.Split(string(text), "\n")
		for _, m := range f.Mutations {
			if m.Status == "SKIPPED" || m.Status == "NOT COVERED" || m.Status == "NOT VIABLE" {
				continue
			}
			r.mutants = append(r.mutants, mutant{file: file, line: m.Line, source: strings.TrimSpace(lines[m.Line-1]), kind: m.Type, status: m.Status})
		}
	}
	return nil
}
