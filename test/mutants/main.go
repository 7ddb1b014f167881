// Command mutants changes the code in small ways, one at a time, and counts the changes
// that no test notices: of the Go packages whose arithmetic decides, and of the Lua scripts.
// It takes a sample that follows from the seed.
//
//	make mutants                        half an hour; another sample each day
//	make mutants ARGS="-seed 7"         that sample again
//	make mutants ARGS="-only quota -for 3m"
//
// It works on a clone of the last commit. Survivors are printed; those in accepted.txt change nothing that
// a test could see, or nothing that matters, for the reason given there. It fails if
// less than minKilled of the others were killed, or more than maxTimeouts timed out.
package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	minKilled   = 0.80
	maxTimeouts = 0.02
)

func main() {
	today := uint64(time.Now().Unix() / 86400)
	r := &run{}
	flag.Uint64Var(&r.seed, "seed", today, "`seed` of the samples")
	only := flag.String("only", "", "mutate only that `package`, or lua")
	limit := flag.Duration("for", 28*time.Minute, "how long all may take, about")
	flag.Parse()
	if err := r.all(*only, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// mutant is one change and what became of it.
type mutant struct {
	file   string // from the module's root
	line   int
	source string // the line, without the space around it
	kind   string
	status string
}

// Status of a mutant.
const (
	killed   = "KILLED"
	lived    = "LIVED"
	timedOut = "TIMED OUT"
)

// run is one call of this program.
type run struct {
	seed    uint64
	copy    string // a clone of the repository
	mutants []mutant
}

func (r *run) all(only string, limit time.Duration) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r.copy = filepath.Join(dir, "copy")
	if out, err := exec.Command("git", "clone", "--quiet", ".", r.copy).CombinedOutput(); err != nil { //nolint:noctx // short
		return fmt.Errorf("git clone: %w\n%s", err, out)
	}
	fmt.Printf("seed %d\n", r.seed)
	for _, t := range targets() {
		share := time.Duration(t.share * float64(limit))
		if only == t.name {
			share = limit
		} else if only != "" {
			continue
		}
		began, before := time.Now(), len(r.mutants)
		if err := r.mutate(&t, share); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		fmt.Printf("%-12s %s in %v\n", t.name, count(r.mutants[before:]), time.Since(began).Round(time.Second))
	}
	return r.report()
}

// shuffle brings all into the order that the seed gives.
func shuffle[T any](seed uint64, all []T) {
	rand.New(rand.NewPCG(seed, seed)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

// counts are numbers of mutants by status.
type counts map[string]int

func count(all []mutant) counts {
	c := counts{}
	for _, m := range all {
		c[m.status]++
	}
	return c
}

// String is what a line of the report says about them.
func (c counts) String() string {
	return fmt.Sprintf("%3d killed, %2d survived, %d timed out", c[killed], c[lived], c[timedOut])
}

//go:embed accepted.txt
var acceptedText string

// accepted reads the survivors that are accepted: file, kind, source line and reason,
// separated by tabs. Line numbers would change with every edit.
func accepted() map[[3]string]bool {
	all := map[[3]string]bool{}
	lines := bufio.NewScanner(strings.NewReader(acceptedText))
	for lines.Scan() {
		if f := strings.Split(lines.Text(), "\t"); len(f) == 4 && f[3] != "" {
			all[[3]string{f[0], f[1], f[2]}] = true
		}
	}
	return all
}

func (r *run) report() error {
	accepted := accepted()
	var counted []mutant
	for _, m := range r.mutants {
		if m.status == lived && accepted[[3]string{m.file, m.kind, m.source}] {
			continue
		}
		counted = append(counted, m)
		if m.status != killed {
			fmt.Printf("%s:%d: %s %s: %s\n", m.file, m.line, m.kind, m.status, m.source)
		}
	}
	c := count(counted)
	fmt.Printf("%v, %d accepted\n", c, len(r.mutants)-len(counted))
	switch judged := float64(c[killed] + c[lived]); {
	case judged == 0:
		return errors.New("nothing was mutated")
	case float64(c[killed]) < minKilled*judged:
		return fmt.Errorf("%.0f %% were killed, want %.0f %%", 100*float64(c[killed])/judged, 100*minKilled)
	case float64(c[timedOut]) > maxTimeouts*(judged+float64(c[timedOut])):
		return fmt.Errorf("%d timed out, want %.0f %% at most", c[timedOut], 100*maxTimeouts)
	}
	return nil
}

// lastLines are the end of an output, for an error.
func lastLines(out []byte) []byte {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-15):], []byte("\n"))
}
