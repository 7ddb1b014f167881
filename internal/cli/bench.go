package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/regiond/regiond/internal/load"
)

// Bench is the command `bench`. What it admits is charged, to tenants of its own.
func Bench() *cobra.Command {
	o, t := &load.Options{Costs: load.Costs{Min: 1, Max: 1}}, &target{noProxy: true} // what is measured is regiond
	c := &cobra.Command{
		Use:   "bench",
		Short: "Ask running regionds at a fixed rate, and how they did",
		Long: `Sends checks to running regionds at a fixed rate and prints what came back and how long
it took. What they admit is charged, to the tenants bench-1, bench-2, …
Exit code 0 when every check that was due was decided, 1 when some were not, 2 when it
could not begin.`,
		Example: `  regiond bench
  regiond bench --target http://eu-1:8080 --target http://eu-2:8080 --rate 5000 --for 1m --tenants 20000 --cost 1-5`,
		Args: func(c *cobra.Command, words []string) error {
			if err := NoArgs(c, words); err != nil {
				return fmt.Errorf("%w; a target is named by --target", err)
			}
			return nil
		},
	}
	f := c.Flags()
	addTarget := func(v string) error {
		target, err := load.ParseTarget(v)
		o.Targets = append(o.Targets, target)
		return err
	}
	f.Func("target", "`URL` of a data listener to ask; several share the rate, in turn (default "+defaultData+")", addTarget)
	f.Float64Var(&o.Rate, "rate", 1000, "checks per second, of all targets together; each is sent when it is due")
	f.DurationVar(&o.For, "for", 10*time.Second, "how long to measure, at most "+load.MaxFor.String())
	f.DurationVar(&o.Warmup, "warmup", 2*time.Second, "how long to send before that, uncounted")
	f.IntVar(&o.Tenants, "tenants", 1000, "how many tenants to ask for, by the names bench-1, bench-2, …")
	f.StringVar(&o.Prefix, "tenant-prefix", "bench-", "`text` that their names begin with")
	f.Float64Var(&o.Zipf, "zipf", 1, "how uneven they are: tenant k is asked for as 1/k^`s`; 0 is all alike")
	policy := policyFlag(c, "`policy` to ask, instead of each tenant's own")
	f.Func("cost", "`units` of a check, or a range such as 1-5 (default 1)", func(v string) (err error) {
		o.Costs, err = load.ParseCosts(v)
		return err
	})
	f.IntVar(&o.MaxInFlight, "max-in-flight", 1000, "checks that may wait at once; what is due beyond is counted, not sent")
	f.DurationVar(&o.Timeout, "timeout", checkTimeout, "how long to wait for an answer")
	t.secretFlags(f, "data")
	outputFlag(c, &t.format)
	f.BoolFunc("json", "the same as -o json", func(string) error { return f.Set("output", "json") })
	c.RunE = func(c *cobra.Command, _ []string) error {
		if len(o.Targets) == 0 {
			o.Targets = []string{defaultData}
		}
		o.Policy = *policy
		if err := o.Validate(); err != nil {
			return fmt.Errorf("--%w", err)
		}
		return bench(c.Context(), o, t, c.OutOrStdout(), c.ErrOrStderr())
	}
	return c
}

func bench(ctx context.Context, o *load.Options, t *target, stdout, stderr io.Writer) (err error) {
	if o.Token, o.TLS, err = t.secrets(); err != nil {
		return err
	}
	// The first Ctrl-C ends the run in order, a second one at once.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	// A mistake costs one line and not a run: each target is asked for what spends nothing.
	query := url.Values{"cost": {strconv.FormatInt(o.Costs.Max, 10)}}
	if o.Policy != "" {
		query.Set("policy", o.Policy)
	}
	path := "/v1/usage/" + url.PathEscape(o.Prefix+"1") + "?" + query.Encode()
	for _, t.addr = range o.Targets {
		var v struct{ Basis string }
		_, err := t.fetch(ctx, http.MethodGet, path, nil, &v, func() bool { return v.Basis != "" })
		switch {
		case ctx.Err() != nil:
			return errors.New("ended before it began")
		case err != nil:
			return fmt.Errorf("--target %s: %w", t.addr, err)
		}
	}
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(stderr, "Sending %v checks a second for %v. Ctrl-C ends it early, with a result.\n", o.Rate, o.Warmup+o.For)
	}
	r, err := load.Run(ctx, *o)
	if err != nil {
		return err
	}
	if t.format == "json" {
		err = writeJSON(stdout, r)
	} else {
		r.Print(stdout)
	}
	if err == nil && r.Decided < r.Due {
		return Exit{Code: ExitFailed}
	}
	return err
}
