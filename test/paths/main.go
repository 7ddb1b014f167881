// Command paths counts, from the code, the files that one check and one delta go through:
//
//	go run -C test/paths .
//
// A way is a list of legs, each from one function to another that it calls, directly or through others. A file is
//
//	0 deep  if a function in it lies on a call path of a leg,
//	1 deep  if one is called by such a function, and
//	2 deep  if one is called by one that is 1 deep.
//
// The number of a way is that of its files down to 2 deep: what somebody opens who follows it and reads what each step does,
// but not how that works. Calls come from variable type analysis (golang.org/x/tools/go/callgraph/vta) of everything that the
// program is built of. A call through an interface leads to each implementation that can be meant, unless one of them is on
// the way; one through a function value leads on only on the way, since a table of endpoints would lead to all of them. Calls
// of other modules, generated code, the demo and test/ do not count.
//
// The analysis does not know which branch is taken, so what only a failure calls is counted too, and it does not see through
// channels: each leg begins where the one before has handed over. A function that is renamed has to be renamed here; until
// then this fails.
package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/callgraph"
	"golang.org/x/tools/go/callgraph/cha"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

const (
	module = "github.com/regiond/regiond/"
	deep   = 2
)

type way struct {
	name string
	legs [][2]string // from, to
}

var ways = []way{
	{"one check, from the HTTP handler to the script and back", [][2]string{
		{"(*httpapi/plain.Server).serve", "(*httpapi.call).dispatch"},
		{"(*httpapi.call).check", "(*limiter.Limiter).askOnce"},
		{"(*limiter/redisstore.Store).Decide", "(*limiter/redisstore.node).pipeline"},
		{"(*limiter/redisstore.node).exec", "limiter/redisstore.parseReplies"},
		{"(*limiter.Limiter).decide", "(*limiter.query).decision"},
		{"(*httpapi.call).answer", "httpapi/answer.Decision"},
	}},
	{"one delta, from the script's reply to a peer's estimate", [][2]string{
		{"(*limiter/redisstore.node).exec", "limiter/redisstore.parseReplies"},
		{"(*limiter.Limiter).fromStore", "(*sync/ledger.Ledger).Record"},
		{"(*sync.Mesh).publishChanges", "(*sync/ledger.Ledger).Take"},
		{"(*sync.Mesh).publishChanges", "(*sync/natsbus.Bus).Publish"},
		{"(*sync/natsbus.Bus).connection", "(*sync/natsbus.Bus).send"},
		{"(*sync/natsbus.Bus).receive", "(*sync/natsbus.Bus).receive"},
		{"(*sync.Mesh).Receive", "(*sync/ledger.Ledger).foldPeer"},
		{"(*region/view.Ceilings).Ceiling", "(*sync/ledger.Ledger).Estimates"},
	}},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "paths:", err)
		os.Exit(1)
	}
}

func run() error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	all, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: root}, "./...")
	if err != nil {
		return err
	}
	if packages.PrintErrors(all) > 0 {
		return fmt.Errorf("%s does not build", root)
	}
	all = slices.DeleteFunc(all, func(p *packages.Package) bool {
		return strings.HasPrefix(p.PkgPath, module+"test/") || p.PkgPath == module+"internal/demo"
	})
	program, _ := ssautil.Packages(all, ssa.InstantiateGenerics)
	program.Build()
	calls := vta.CallGraph(ssautil.AllFunctions(program), cha.CallGraph(program))
	named := map[string]*callgraph.Node{}
	for f, n := range calls.Nodes {
		if f != nil {
			named[strings.ReplaceAll(f.String(), module, "")] = n
		}
	}
	for _, w := range ways {
		reached, err := w.follow(named)
		if err != nil {
			return err
		}
		show(w.name, files(root, program, reached))
	}
	return nil
}

// follow returns how deep each function is that the way leads to.
func (w *way) follow(named map[string]*callgraph.Node) (map[*callgraph.Node]int, error) {
	reached := map[*callgraph.Node]int{}
	for _, leg := range w.legs {
		from, to := named[leg[0]], named[leg[1]]
		if from == nil || to == nil {
			return nil, fmt.Errorf("%s: there is no function %s, or no %s", w.name, leg[0], leg[1])
		}
		callers := closure(to, func(n *callgraph.Node) (next []*callgraph.Node) {
			for _, e := range n.In {
				next = append(next, e.Caller)
			}
			return next
		})
		if !callers[from] {
			return nil, fmt.Errorf("%s: %s does not lead to %s", w.name, leg[0], leg[1])
		}
		onWay := closure(from, func(n *callgraph.Node) (next []*callgraph.Node) {
			for _, e := range n.Out {
				if callers[e.Callee] {
					next = append(next, e.Callee)
				}
			}
			return next
		})
		for n := range onWay {
			reached[n] = 0
		}
	}
	for depth := range deep {
		for n := range maps.Clone(reached) {
			if reached[n] != depth {
				continue
			}
			for _, called := range called(n, reached) {
				if _, ok := reached[called]; !ok {
					reached[called] = depth + 1
				}
			}
		}
	}
	return reached, nil
}

// called are the functions that n calls, as this counts them.
func called(n *callgraph.Node, reached map[*callgraph.Node]int) (functions []*callgraph.Node) {
	onWay := map[ssa.CallInstruction]bool{}
	for _, e := range n.Out {
		if depth, ok := reached[e.Callee]; ok && depth == 0 {
			onWay[e.Site] = true
		}
	}
	for _, e := range n.Out {
		if e.Site == nil || onWay[e.Site] {
			continue
		}
		if c := e.Site.Common(); c.IsInvoke() || c.StaticCallee() != nil {
			functions = append(functions, e.Callee)
		}
	}
	return functions
}

func closure(n *callgraph.Node, next func(*callgraph.Node) []*callgraph.Node) map[*callgraph.Node]bool {
	seen, todo := map[*callgraph.Node]bool{n: true}, []*callgraph.Node{n}
	for len(todo) > 0 {
		n, todo = todo[0], todo[1:]
		for _, other := range next(n) {
			if !seen[other] && other.Func != nil {
				seen[other] = true
				todo = append(todo, other)
			}
		}
	}
	return seen
}

// files are those of this module that hold the functions, with how deep the nearest is.
func files(root string, program *ssa.Program, functions map[*callgraph.Node]int) map[string]int {
	found := map[string]int{}
	for n, depth := range functions {
		name, err := filepath.Rel(root, program.Fset.Position(n.Func.Pos()).Filename)
		if err != nil || strings.HasPrefix(name, "..") || n.Func.Synthetic != "" ||
			!strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		if before, ok := found[name]; !ok || depth < before {
			found[name] = depth
		}
	}
	return found
}

func show(name string, found map[string]int) {
	folders, upTo := map[string]bool{}, [deep + 1]int{}
	for file, depth := range found {
		folders[filepath.Dir(file)] = true
		for d := depth; d <= deep; d++ {
			upTo[d]++
		}
	}
	fmt.Printf("%s: %d files of %d packages\n", name, len(found), len(folders))
	for d, n := range upTo {
		fmt.Printf("  down to %d deep: %d\n", d, n)
	}
	for _, file := range slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(cmp.Compare(found[a], found[b]), cmp.Compare(a, b))
	}) {
		fmt.Printf("  %d %s\n", found[file], file)
	}
}
