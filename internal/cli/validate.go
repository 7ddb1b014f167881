package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/region"
)

// Validate prints every mistake of a topology with line and column, and what an
// operator should know about one that has none.
func Validate(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	f := NewFlags("validate", "validate [-o json] [FILE]", stderr)
	format := OutputFlag(f)
	words, err := Parse(f, args)
	if err != nil {
		return ExitUsage, err
	}
	name := "topology.yaml"
	switch len(words) {
	case 0:
	case 1:
		name = words[0]
	default:
		return ExitUsage, fmt.Errorf("takes one file, got %d", len(words))
	}
	top, warnings, err := rls.Load(name)
	invalid := (*region.Invalid)(nil)
	if err != nil && !errors.As(err, &invalid) {
		return ExitUsage, err
	}
	code := ExitOK
	if invalid != nil {
		code = ExitUsage
	}
	if *format == "json" {
		return code, writeJSON(stdout, report(name, top, warnings, invalid))
	}
	if invalid != nil {
		fmt.Fprintln(stderr, invalid)
		return code, nil
	}
	for _, w := range warnings {
		fmt.Fprintln(stdout, w.Text(name))
	}
	fmt.Fprintf(stdout, "%s: valid, %s, %s, hash %s\n", name,
		count(len(top.Regions), "region", "regions"), count(len(top.Policies), "policy", "policies"), top.Hash())
	return code, nil
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// validation is what `validate -o json` prints.
type validation struct {
	File     string           `json:"file"`
	Valid    bool             `json:"valid"`
	Hash     string           `json:"hash,omitempty"`
	Mistakes []region.Problem `json:"mistakes"`
	Warnings []region.Problem `json:"warnings"`
}

func report(name string, top *region.Topology, warnings []region.Problem, invalid *region.Invalid) validation {
	v := validation{File: name, Valid: invalid == nil, Mistakes: []region.Problem{}, Warnings: []region.Problem{}}
	if invalid != nil {
		v.Mistakes = append(v.Mistakes, invalid.Problems...)
		return v
	}
	v.Hash = top.Hash()
	v.Warnings = append(v.Warnings, warnings...)
	return v
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
