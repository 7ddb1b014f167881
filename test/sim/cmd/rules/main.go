// Command rules takes the rules of safety out of the program, one at a time, and says how
// long the simulator plays until it shows that the rule is missing, or which test does.
//
//	go run ./test/sim/cmd/rules                 all of them, in some minutes
//	go run ./test/sim/cmd/rules -only "no void" those of which the name contains that
//
// The source stays as it is: a build has the changed file as an overlay. It exits with 1
// if a mutant was not found.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "the mutants of which the name contains this")
	most := flag.Duration("time", 3*time.Minute, "how long worlds of one mutant are begun")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok := true
	for _, m := range mutants() {
		if !strings.Contains(m.name, *only) {
			continue
		}
		found, err := m.play(ctx, *most)
		if err != nil {
			fmt.Fprintln(os.Stderr, "rules:", err)
			os.Exit(1)
		}
		fmt.Printf("%-46s %s\n", m.name, found)
		ok = ok && found.shown
	}
	if !ok {
		os.Exit(1)
	}
}

// outcome is what worlds of a mutant showed.
type outcome struct {
	shown bool
	text  string
}

// String says how long it took.
func (o outcome) String() string { return o.text }

// play builds the simulator without the rule and runs it.
func (m *mutant) play(ctx context.Context, most time.Duration) (o outcome, err error) {
	dir, err := os.MkdirTemp("", "rules")
	if err != nil {
		return o, err
	}
	defer os.RemoveAll(dir)
	source, err := os.ReadFile(m.file)
	if err != nil {
		return o, fmt.Errorf("run this in the root of the repository: %w", err)
	}
	changed, err := m.apply(string(source))
	if err != nil {
		return o, err
	}
	file, overlay, binary := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim")
	original, err := filepath.Abs(m.file)
	if err != nil {
		return o, err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: file}})
	if err != nil {
		return o, err
	}
	if err = os.WriteFile(file, []byte(changed), 0o600); err != nil {
		return o, err
	}
	if err = os.WriteFile(overlay, replace, 0o600); err != nil {
		return o, err
	}
	if pkg, test, ok := strings.Cut(m.test, " "); ok {
		out, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-overlay", overlay, "-run", "^"+test+"$", pkg).CombinedOutput()
		shown := err != nil && strings.Contains(string(out), "--- FAIL: "+test)
		return outcome{shown: shown, text: map[bool]string{true: "shown by ", false: "not shown by "}[shown] + test}, ctx.Err()
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, "./test/sim/cmd/sim").CombinedOutput(); err != nil {
		return o, fmt.Errorf("%s: %w\n%s", m.name, err, out)
	}
	args := []string{"-time", most.String(), "-brief", "-strict", "-only", m.only, "-from", "1", "-lasts", "10m"}
	out, err := exec.CommandContext(ctx, binary, args...).Output()
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	return outcome{shown: err != nil, text: strings.TrimSpace(string(out))}, nil
}
