// Command buildcost prints what each dependency costs a build of regiond from an empty cache, as the table of
// docs/performance.md: packages, processor time, and megabytes of the program as it is released.
//
//	go run ./test/buildcost                  builds it, in a minute or two of idle processors
//	go run ./test/buildcost -graph FILE      of a build that was made with go build -debug-actiongraph=FILE
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	program = "github.com/regiond/regiond/cmd/regiond"
	least   = 0.5 // seconds or megabytes of what has a row
	// unwritten is 32 MB that nm shows as data and the file has not.
	unwritten = "crypto/internal/fips140/drbg.memory"
)

func main() {
	graph := flag.String("graph", "", "action `graph` of a build, in place of one that is made now")
	flag.Parse()
	dir := must(os.MkdirTemp("", "buildcost"))
	defer func() { _ = os.RemoveAll(dir) }()
	if *graph == "" {
		*graph = filepath.Join(dir, "graph")
		run("GOCACHE="+filepath.Join(dir, "cache"), "build", "-debug-actiongraph="+*graph, "-o", os.DevNull, program)
	}
	imports, moduleOf, modules := map[string][]string{}, map[string]string{}, map[string][]string{}
	list := run("", "list", "-deps", "-f", `{{with .Module}}{{.Path}}{{else}}std{{end}} {{.ImportPath}} {{join .Imports " "}}`, program)
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		moduleOf[f[1]], imports[f[1]], modules[f[0]] = f[0], f[2:], append(modules[f[0]], f[1])
	}
	seconds, link := times(*graph)
	bytes := sizes(filepath.Join(dir, "regiond"), moduleOf)
	sum := func(packages []string) (s float64) {
		for _, p := range packages {
			s += seconds[p]
		}
		return s
	}
	// without is what is left where nothing imports a module.
	without := func(module string) []string {
		left := map[string]bool{}
		var visit func(p string)
		visit = func(p string) {
			if left[p] || moduleOf[p] == module {
				return
			}
			left[p] = true
			for _, i := range imports[p] {
				visit(i)
			}
		}
		visit(program)
		return slices.Collect(maps.Keys(left))
	}
	all := slices.Collect(maps.Keys(imports))
	fmt.Print("| | packages | seconds | and what only it imports | MB |\n|---|---|---|---|---|\n")
	byCost := func(a, b string) int { return cmp.Compare(sum(modules[b]), sum(modules[a])) }
	for _, m := range slices.SortedFunc(maps.Keys(modules), byCost) {
		with := ""
		if m != "std" && m != moduleOf[program] {
			gone := sum(all) - sum(without(m))
			if gone < least && bytes[m] < least {
				continue
			}
			with = fmt.Sprintf("%.1f", gone)
		}
		fmt.Printf("| %s | %d | %.1f | %s | %.1f |\n", m, len(modules[m]), sum(modules[m]), with, bytes[m])
	}
	fmt.Printf("| all, and to link | %d | %.1f | | %.1f |\n", len(all), sum(all)+link, bytes["all"])
}

// times returns the processor seconds of compiling each package, and of linking.
func times(graph string) (seconds map[string]float64, link float64) {
	var actions []struct {
		Mode, Package   string
		CmdUser, CmdSys float64 // ns
	}
	must(0, json.Unmarshal(must(os.ReadFile(graph)), &actions))
	seconds = map[string]float64{}
	for _, a := range actions {
		switch s := (a.CmdUser + a.CmdSys) / 1e9; a.Mode {
		case "build":
			seconds[a.Package] += s
		case "link":
			link += s
		}
	}
	return seconds, link
}

// sizes returns the megabytes of each module by the symbols that name a package of it, and of all. What names none, such as the
// table of lines, is divided in proportion.
func sizes(file string, moduleOf map[string]string) map[string]float64 {
	bytes, named := map[string]float64{}, 0.0
	run("", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags=-w", "-o", file, program)
	for line := range strings.Lines(run("", "tool", "nm", "-size", file)) {
		f := strings.Fields(line) // address, size, kind, name
		if len(f) < 4 || strings.EqualFold(f[2], "b") || f[3] == unwritten || moduleOf[packageOf(f[3])] == "" {
			continue // b takes no room in the file either
		}
		size := must(strconv.ParseFloat(f[1], 64))
		bytes[moduleOf[packageOf(f[3])]] += size
		named += size
	}
	run("", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags=-s -w", "-o", file, program)
	bytes["all"] = named
	for m := range bytes {
		bytes[m] *= float64(must(os.Stat(file)).Size()) / named / 1e6
	}
	return bytes
}

// packageOf returns what is before the first dot behind the last slash of a symbol's name.
func packageOf(symbol string) string {
	name := strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(symbol, "type:"), "go:itab."), "*[]")
	if i := strings.IndexAny(name, "[({,"); i >= 0 {
		name = name[:i]
	}
	slash := strings.LastIndexByte(name, '/') + 1
	last, _, _ := strings.Cut(name[slash:], ".")
	return strings.ReplaceAll(name[:slash]+last, "%2e", ".")
}

func run(env string, args ...string) string {
	c := exec.CommandContext(context.Background(), "go", args...)
	c.Env, c.Stderr = append(os.Environ(), env), os.Stderr
	return string(must(c.Output()))
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, "buildcost:", err)
		os.Exit(1)
	}
	return v
}
