// Package cli holds the commands of regiond that talk to a running one or read a
// file, and runs every command of the program: it finds it, parses flags, prints what is wrong and
// returns an exit code.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/region"
)

// Exit codes of all commands. What fails by chance, such as an address in use, may succeed at another start; what is wrong with
// flags or files will not.
const (
	ExitOK     = 0 // done, and the answer is yes: allowed, mode global, ready, valid, every check decided
	ExitFailed = 1 // the answer is no; or nobody is ready (healthcheck); or serve or demo failed while they ran
	ExitUsage  = 2 // a mistake in flags, arguments or files, or no answer
)

// Exit is an error with another code than ExitUsage, or one that the output has already: Err is nil then.
type Exit struct {
	Code int
	Err  error
}

// Error implements error.
func (e Exit) Error() string {
	if e.Err == nil {
		return "exit " + strconv.Itoa(e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e Exit) Unwrap() error { return e.Err }

// New returns the program: the command regiond with those given below it.
func New(b Build, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "regiond",
		Short: "A rate limiter for APIs that run in several regions",
		Long: `regiond is a rate limiter for APIs that run in several regions.

Exit codes of all commands:
  0  done, and the answer is yes
  1  the answer is no; or nobody is ready; or serve or demo failed by chance
  2  a mistake in flags, arguments or files, or no answer`,
		Example: `  regiond serve                                    one region on loopback, nothing to configure
  regiond serve --config topology.yaml --region R  one region of a topology
  regiond demo                                     three regions in one process, to try cuts on`,
		Version:       b.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(commands...)
	return root
}

// Run runs a command line of the program, prints what is wrong, and returns the exit code.
func Run(ctx context.Context, program *cobra.Command, args []string, stdout, stderr io.Writer) int {
	program.SetOut(stdout)
	program.SetErr(stderr)
	program.SetArgs(append([]string{}, args...)) // nil would be those of the process
	c, err := program.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	exit := Exit{Code: ExitUsage, Err: err}
	errors.As(err, &exit)
	if exit.Err != nil {
		fmt.Fprintln(stderr, c.CommandPath()+": "+exit.Err.Error())
	}
	return exit.Code
}

// flagError names the flag, its value and what is wrong with it. The flags of a command that does not exist are all unknown, so it
// names that command.
func flagError(c *cobra.Command, err error) error {
	if words := c.Flags().Args(); len(words) > 0 && c.HasAvailableSubCommands() {
		return NoArgs(c, words)
	}
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &value):
		why := value.Unwrap()
		if number := (*strconv.NumError)(nil); errors.As(why, &number) {
			why = number.Err
		}
		name := "--" + value.GetFlag().Name
		if letter := value.GetFlag().Shorthand; letter != "" {
			name = "-" + letter
		}
		err = fmt.Errorf("%s %q: %w", name, value.GetValue(), why)
	case errors.As(err, &unknown) && len(unknown.GetSpecifiedShortnames()) > 1:
		err = fmt.Errorf("unknown flag -%s; a name of more than a letter takes two dashes", unknown.GetSpecifiedShortnames())
	}
	return fmt.Errorf("%w; -h lists the flags", err)
}

// NoArgs refuses words. Where there are commands below, a word is meant as one of them.
func NoArgs(c *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2 // letters
	suggested := c.SuggestionsFor(words[0])
	switch {
	case len(suggested) > 0:
		return fmt.Errorf("unexpected argument %q; did you mean %s?", words[0], suggested[0])
	case c.HasAvailableSubCommands():
		return fmt.Errorf("unknown command %q; -h lists those that there are", words[0])
	}
	return fmt.Errorf("unexpected argument %q", words[0])
}

// oneTenant wants one word.
func oneTenant(_ *cobra.Command, words []string) error {
	if len(words) != 1 {
		return fmt.Errorf("takes one tenant, got %d words", len(words))
	}
	return nil
}

// outputFlag defines -o, text for a person or JSON for a script.
func outputFlag(c *cobra.Command, format *string) {
	*format = "text"
	c.Flags().FuncP("output", "o", "`format`: text or json (default text)", func(v string) error {
		if v != "text" && v != "json" {
			return errors.New("is text or json")
		}
		*format = v
		return nil
	})
	Complete(c, "output", "text", "json")
}

// Complete has a shell complete a flag by words.
func Complete(c *cobra.Command, flag string, words ...string) {
	// It fails without such a flag only.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// defaultFile is the topology where none is named.
const defaultFile = "topology.yaml"

// CompleteRegions has a shell complete a flag by the regions of a topology file, which file returns; "" is topology.yaml here.
func CompleteRegions(c *cobra.Command, flag string, file func(words []string) string) {
	completeNames(c, flag, file, (*region.Topology).RegionNames)
}

// policyFlag defines --policy, which a shell completes by those of topology.yaml here.
func policyFlag(c *cobra.Command, usage string) *string {
	policy := c.Flags().String("policy", "", usage)
	completeNames(c, "policy", func([]string) string { return "" }, func(t *region.Topology) (names []string) {
		for i := range t.Policies {
			names = append(names, t.Policies[i].Name)
		}
		return names
	})
	return policy
}

func completeNames(c *cobra.Command, flag string, file func([]string) string, names func(*region.Topology) []string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, words []string, _ string) ([]string, cobra.ShellCompDirective) {
		name := file(words)
		if name == "" {
			name = defaultFile
		}
		top, _, err := rls.Load(name, nil)
		if err != nil { // a shell has no place to show it
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(top), cobra.ShellCompDirectiveNoFileComp
	})
}
