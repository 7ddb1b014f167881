package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/region/warnings"
)

// Validate is the command `validate`. check returns what serve would find wrong with the files
// of a region. Where all regions are meant, this may be another machine or user: what is not there is a warning.
func Validate(check func(*region.Topology, string) []error) *cobra.Command {
	c := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a topology (default " + defaultFile + ")",
		Long: `Prints every mistake of a topology with line and column, and what an operator should
know about one that has none. The files that it names are checked as serve checks them.
Exit code 0 valid, 2 not.`,
		Example: `  regiond validate
  regiond validate --region eu-west topology.yaml
  regiond validate --was old.yaml topology.yaml
  regiond validate -o json topology.yaml`,
		Args: func(_ *cobra.Command, words []string) error {
			if len(words) > 1 {
				return fmt.Errorf("takes one file, got %d", len(words))
			}
			return nil
		},
	}
	name := c.Flags().String("region", "", "check as `NAME`'s own host and user: files that are missing here are mistakes")
	was := c.Flags().String("was", "", "warn of limits and tenants that a reload from `FILE` starts anew; refuse what it refuses")
	var format string
	outputFlag(c, &format)
	file := func(words []string) string { return append(words, defaultFile)[0] }
	CompleteRegions(c, "region", file)
	c.RunE = func(c *cobra.Command, words []string) error {
		return validate(check, file(words), *was, *name, format, c.OutOrStdout(), c.ErrOrStderr())
	}
	return c
}

func validate(check func(*region.Topology, string) []error, file, was, name, format string, stdout, stderr io.Writer) error {
	top, found, err := rls.Load(file, warnings.OfFile)
	if err == nil {
		var absent []region.Problem
		absent, err = checkFiles(check, file, top, name)
		found = append(found, absent...)
	}
	if err == nil && was != "" {
		before, _, wrong := rls.Load(was, nil)
		if wrong != nil {
			return fmt.Errorf("--was: %w", wrong)
		}
		if refused := state.Refusal(before, top); refused != nil {
			err = &region.Invalid{File: file, Problems: []region.Problem{{Detail: "a reload from " + was + " is refused: " + refused.Error()}}}
		}
		found = append(found, warnings.OfReload(before, top)...)
	}
	invalid := (*region.Invalid)(nil)
	if err != nil && !errors.As(err, &invalid) {
		return err
	}
	switch {
	case format == "json":
		err = writeJSON(stdout, report(file, top, found, invalid))
	case invalid != nil:
		fmt.Fprintln(stderr, invalid)
	default:
		for _, w := range found {
			fmt.Fprintln(stdout, w.Text(file))
		}
		fmt.Fprintf(stdout, "%s: valid, %s, %s, hash %s\n", file,
			count(len(top.Regions), "region", "regions"), count(len(top.Policies), "policy", "policies"), top.Hash())
	}
	if invalid != nil {
		return Exit{Code: ExitUsage}
	}
	return err
}

// checkFiles checks the files that a topology names for a region, or for every one where name is "".
func checkFiles(check func(*region.Topology, string) []error, file string, top *region.Topology, name string) (warnings []region.Problem, err error) {
	names := []string{name}
	if name == "" {
		names = top.RegionNames()
	} else if _, ok := top.Region(name); !ok {
		return nil, fmt.Errorf("--region: %s has %w", file, top.NoRegion(name))
	}
	invalid, seen := &region.Invalid{File: file}, map[string]bool{} // some files are of all regions
	var absent []string
	for _, one := range names {
		for _, err := range check(top, one) {
			var at *fs.PathError
			unread := name == "" && errors.As(err, &at) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission))
			what := err.Error()
			if unread {
				what = at.Path
			}
			switch {
			case seen[what]:
			case unread:
				absent = append(absent, what)
			default:
				invalid.Problems = append(invalid.Problems, region.Problem{Detail: what})
			}
			seen[what] = true
		}
	}
	if len(invalid.Problems) > 0 {
		return nil, invalid
	}
	if len(absent) > 0 {
		warnings = append(warnings, region.Problem{Detail: "not checked, since this host or user cannot read them: " + strings.Join(absent, ", ") +
			"; a regiond that cannot does not start (--region NAME, on a host of that region, makes it a mistake)"})
	}
	return warnings, nil
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
