package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra/doc"

	"github.com/regiond/regiond/internal/cli"
	"github.com/regiond/regiond/test/golden"
)

// TestExitCodes: what scripts rely on. Each row of the file is a command line, its exit code, and the first line of
// standard error. Nothing listens on port 1.
func TestExitCodes(t *testing.T) {
	const invalid = "topology: [\n"
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.yaml")
	if err := os.WriteFile(broken, []byte(invalid), 0o600); err != nil {
		t.Fatal(err)
	}
	const valid = "../../examples/caddy/topology.yaml"
	tidy := strings.NewReplacer(dir, "DIR", cli.HowStarted(), "regiond")
	var got strings.Builder
	for _, line := range []string{
		"", "help", "-h", "--help", "help check", "chek", "chek acme", "--nosuch", "--version", "completion bash",
		"version", "version now", "version -h", "version -o json", "version -o yaml", "version --nosuch",
		"serve -h", "serve --help", "srve",
		"serve now", "serve --nosuch", "serve --config topology.yaml", "serve --region eu-west",
		"serve --config testdata/absent.yaml --region us-east", "serve --config BROKEN --region town",
		"serve --processes 0", "serve --drain -1s", "serve --drain 5", "serve --redis-budget 60ms",
		"serve --log-format xml", "serve --http 127.0.0.1:x", "serve -config topology.yaml",
		"serve --http 127.0.0.1:0 --admin 127.0.0.1:0 --drain 0s",
		"check", "check -h", "check acme globex", "check acme -d user", "check acme -d user=a -d user=b",
		"check acme --cost five", "check acme --token-file DIR/absent", "check acme --addr 127.0.0.1:1",
		"check acme --addr http://[::1", "check --addr", "check -o xml acme",
		"explain", "explain -h", "explain acme --cost five", "explain acme --addr 127.0.0.1:1",
		"regions -h", "regions now", "regions --addr 127.0.0.1:1", "regions --ca-file DIR/absent",
		"limits", "limits delete acme --addr 127.0.0.1:1", "limits shw", "limits set", "limits unset acme --addr 127.0.0.1:1",
		"top -h", "top acme", "top --by cost", "top --scope eu", "top --window 5m", "top --limit 0",
		"top --every 1ms", "top --addr 127.0.0.1:1",
		"bench -h", "bench now", "bench --rate fast", "bench --rate 0", "bench --zipf -1", "bench --cost five",
		"bench --target ftp://x", "bench --target 127.0.0.1:1", "bench --tenant-prefix -x --target 127.0.0.1:1",
		"healthcheck -h", "healthcheck now", "healthcheck --addr 127.0.0.1:1", "healthcheck --addr http://[::1",
		"healthcheck --timeout soon",
		"validate -h", "validate VALID", "validate -o json VALID", "validate VALID -o xml", "validate a b",
		"validate DIR/absent", "validate BROKEN", "validate -o json BROKEN", "validate --region nowhere VALID",
		"schema", "schema -h", "schema now",
		"demo -h", "demo now", "demo ct", "demo --port 0", "demo --port x", "demo --log DIR/absent/log", "demo cut",
		"demo heal", "demo cut a b", "demo cut eu-west --port 1", "demo heal eu-west --port 1",
		"demo heal eu-west --quiet",
	} {
		args := strings.Fields(strings.NewReplacer("DIR", dir, "BROKEN", broken, "VALID", valid).Replace(line))
		var stdout, stderr bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		if strings.HasPrefix(line, "serve") {
			cancel() // one that begins ends at once
		}
		code := cli.Run(ctx, program(), args, &stdout, &stderr)
		cancel()
		first, _, _ := strings.Cut(stderr.String(), "\n")
		if strings.HasPrefix(first, "{") {
			first = "(its log)"
		}
		fmt.Fprintf(&got, "%d  regiond %s\n", code, line)
		if first != "" {
			fmt.Fprintf(&got, "     %s\n", tidy.Replace(first))
		}
	}
	golden.Compare(t, "exits.golden", got.String())
}

// TestHelp: the help of every command, and that an example is in it.
func TestHelp(t *testing.T) {
	t.Setenv("REGIOND_CA_FILE", "")
	var all bytes.Buffer
	for _, c := range program().Commands() {
		for _, c := range append(c.Commands(), c) {
			words := strings.Fields(c.CommandPath())[1:]
			if c.Example == "" {
				t.Errorf("%s has no example", c.CommandPath())
			}
			fmt.Fprintf(&all, "$ %s --help\n", c.CommandPath())
			if code := cli.Run(t.Context(), program(), append(words, "--help"), &all, &all); code != 0 {
				t.Errorf("%s: exit %d", c.CommandPath(), code)
			}
			fmt.Fprintln(&all)
		}
	}
	if code := cli.Run(t.Context(), program(), nil, &all, &all); code != 0 {
		t.Errorf("without a command: exit %d", code)
	}
	golden.Compare(t, "help.golden", all.String())
}

// TestCompletion: a shell is given the regions and policies of a topology file, and the words of flags that have few.
func TestCompletion(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	for line, want := range map[string]string{
		"serve --config examples/caddy/topology.yaml --region |": "eu-west",
		"serve --region |": "eu-west us-east ap-south",
		"validate examples/caddy/topology.yaml --region |": "eu-west",
		"validate --region |":                              "eu-west us-east ap-south",
		"serve --config absent.yaml --region |":            "",
		"check acme --policy |":                            "standard enterprise",
		"top --policy |":                                   "standard enterprise",
		"bench --policy |":                                 "standard enterprise",
		"regions -o |":                                     "text json",
		"top --window |":                                   "1m 1h",
		"demo cut |":                                       "eu-west us-east ap-south",
		"serve --log-format |":                             "text json auto",
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"__complete"}, strings.Fields(strings.TrimSuffix(line, " |"))...)
		cli.Run(t.Context(), program(), append(args, ""), &stdout, &stderr)
		words, _, _ := strings.Cut(stdout.String(), ":")
		if got := strings.Join(strings.Fields(words), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// manPages is where TestManPages writes them: make man, scripts/release.
var manPages = flag.String("man", "", "`folder` for the man pages and completions")

// TestManPages: each command has one, with its examples, and each shell a completion. cobra's generator of man pages and what it
// needs are 0.7 MB that stay out of the program.
func TestManPages(t *testing.T) {
	dir := *manPages
	if dir == "" {
		dir = t.TempDir()
	}
	root := program()
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Title: "REGIOND", Section: "1", Source: "regiond", Manual: "regiond"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"regiond", "regiond-serve", "regiond-check", "regiond-bench", "regiond-demo-cut"} {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil || !bytes.Contains(page, []byte(".SH EXAMPLE")) {
			t.Errorf("%s: %v\n%s", name, err, page)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), program(), []string{"completion", shell}, &stdout, &stderr)
		if code != 0 || !strings.Contains(stdout.String(), "__complete") {
			t.Errorf("completion %s: exit %d, %d bytes, %s", shell, code, stdout.Len(), &stderr)
		}
		if err := os.WriteFile(filepath.Join(dir, "regiond."+shell), stdout.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
