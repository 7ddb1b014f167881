// Package demo is what `regiond demo` needs besides three whole daemons: the
// topology that they share, cuts between them, the calls of the admin listeners by which the page and another
// terminal make and heal those cuts, and the table that shows what follows.
//
//	regiond demo cut eu-west ──HTTP──▶ Control ──▶ Cuts ◀── Bus        usage, heartbeats, snapshots
//	                                                    ◀── Transport  gossip
//
// A cut lives between a daemon and its network: nothing in the daemon knows that
// this is a demo. Only `regiond demo` and its tests use it.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/regiond/regiond/internal/cli"
)

// demoOptions are the flags of `demo`.
type demoOptions struct {
	port  int    // of the first region
	quiet bool   // no traffic of its own
	log   string // file, "" for none
}

// Command returns the command `demo`, which starts three regions in this process; its commands cut and heal have
// those of another process cut or heal one.
func Command(newNode NewNode) *cobra.Command {
	o := &demoOptions{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Three regions in one process, to try cuts on",
		Long: `Runs three regions on this machine, with a little traffic and a page to watch them and
to cut them off from each other.`,
		Example: `  regiond demo
  regiond demo cut eu-west     (in another terminal)
  regiond demo heal eu-west
  curl -s -d '{"tenant":"acme","cost":100}' localhost:8081/v1/check
  curl -s -d '{"tenant":"acme"}' localhost:8082/v1/check   (used up in Europe: 429 in the US)`,
		Args: cli.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if o.port < 1 || o.port > MaxPort {
				return fmt.Errorf("--port is between 1 and %d, so that there is room for the admin listeners 1000 above", MaxPort)
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return o.start(c.Context(), newNode, c.OutOrStdout()) },
	}
	c.PersistentFlags().IntVar(&o.port, "port", DefaultPort, "first region's data listener; admin listeners are 1000 above")
	c.Flags().BoolVar(&o.quiet, "quiet", false, "make no traffic")
	c.Flags().StringVar(&o.log, "log", "", "`file` to append the logs of the regions to (default they are not kept)")
	c.AddCommand(
		o.change("cut", "Cut a region of a running demo off from the others"),
		o.change("heal", "Connect a region again that was cut off"))
	return c
}

// change is the command `demo cut` or `demo heal`.
func (o *demoOptions) change(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " REGION",
		Short:             short,
		Example:           "  regiond demo " + verb + " " + Regions()[0],
		ValidArgsFunction: cobra.FixedCompletions(Regions(), cobra.ShellCompDirectiveNoFileComp),
		Args: func(_ *cobra.Command, words []string) error {
			if len(words) != 1 {
				return fmt.Errorf("takes one region, such as %s", Regions()[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, words []string) error {
			program := cli.HowStarted()
			change, err := Ask(c.Context(), o.port, verb, words[0])
			if errors.Is(err, ErrNotRunning) {
				return fmt.Errorf("%w: start one in another terminal with `%s demo`, or name its --port", err, program)
			}
			if err == nil {
				fmt.Fprint(c.OutOrStdout(), change.Scenario(program, o.port))
			}
			return err
		},
	}
}

// start runs a demo until ctx or a signal ends it.
func (o *demoOptions) start(ctx context.Context, newNode NewNode, stdout io.Writer) error {
	// Before anything is bound: from here on Ctrl-C ends it in order. A second one
	// does not wait.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	handler, closeLog, err := demoLog(o.log)
	if err != nil {
		return err
	}
	defer closeLog()
	t, err := newCluster(ctx, o, newNode, slog.New(handler))
	if err != nil {
		return demoPort(err, o.port)
	}
	fmt.Fprint(stdout, Banner(cli.HowStarted(), o.port))
	if err := t.run(ctx, stdout); err != nil {
		return cli.Exit{Code: cli.ExitFailed, Err: demoPort(err, o.port)}
	}
	fmt.Fprintln(stdout, "\nThe demo has ended; nothing of it is left.")
	return nil
}

// demoLog is where the regions log to: a file, or nowhere.
func demoLog(file string) (slog.Handler, func(), error) {
	if file == "" {
		return slog.DiscardHandler, func() {}, nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("--log: %w", err)
	}
	closeLog := func() { _ = f.Close() } // what could not be written is not worth an exit code
	return slog.NewJSONHandler(f, nil), closeLog, nil
}

// demoPort describes a port that is in use: the text of an error of a
// listener is about a flag that the demo does not have.
func demoPort(err error, port int) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "listen" {
		return err
	}
	other := port + 100
	if other > MaxPort {
		other = DefaultPort
	}
	return fmt.Errorf("%v cannot be used: %w; if a demo runs already end it, or choose other ports, such as --port %d", op.Addr, op.Err, other)
}
