//go:build unix

// The walk of README.md, with the real regiond.
package company_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/regiond/regiond/test/gateway"
)

// TestWalk pastes the commands of README.md and compares what they print with what it says.
func TestWalk(t *testing.T) {
	binary := gateway.Build(t, "../..")
	r := gateway.StartRegiond(t, binary, "topology.yaml")
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(kind string) (all []string) {
		for _, m := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
			all = append(all, m[1])
		}
		return all
	}
	commands, prints := blocks("sh"), strings.Join(blocks("text"), "")
	if len(commands) < 6 || len(blocks("text")) != len(commands)-1 {
		t.Fatalf("README.md has %d blocks of commands and %d of what they print", len(commands), len(blocks("text")))
	}
	script := strings.ReplaceAll(strings.Join(commands, ""), "localhost:8080", r.Addr)
	walk := exec.CommandContext(t.Context(), "bash", "-euc", `regiond() { command regiond "$@" --addr http://`+r.Admin+"; }\n"+script)
	walk.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	var errs strings.Builder
	walk.Stderr = &errs
	printed, err := walk.Output()
	if err != nil || string(printed) != prints {
		t.Errorf("%v: it prints\n%s%s\nand README.md says\n%s", err, printed, errs.String(), prints)
	}
}
