// Package demo is what `regiond demo` needs besides three whole daemons: the
// topology that they share, cuts between them, the listener through which another
// terminal makes and heals those cuts, and the table that shows what follows.
//
//	regiond demo cut eu-west ──HTTP──▶ Control ──▶ Cuts ◀── Bus        usage, beats, digests
//	                                                    ◀── Transport  gossip
//
// A cut lives between a daemon and its network: nothing in the daemon knows that
// this is a demo. Only `regiond demo` and its tests use it.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/regiond/regiond/internal/cli"
)

// demoOptions are the words and flags of `demo`.
type demoOptions struct {
	verb   string // "" to run one, or cut, heal
	region string // to cut or heal
	port   int    // of the first region
	quiet  bool   // no traffic of its own
	log    string // file, "" for none
}

func demoFlags(args []string, stderr io.Writer) (*demoOptions, error) {
	f := cli.NewFlags("demo", "demo [--port 8081] [--quiet] [--log FILE] | demo cut REGION | demo heal REGION", stderr)
	o := &demoOptions{}
	f.IntVar(&o.port, "port", DefaultPort, "first region's data listener; the others follow, the admin listeners are 1000 above")
	f.BoolVar(&o.quiet, "quiet", false, "make no traffic")
	f.StringVar(&o.log, "log", "", "`file` to append the logs of the regions to (default they are not kept)")
	words, err := cli.Parse(f, args)
	if err != nil {
		return nil, err
	}
	if o.port < 1 || o.port > MaxPort {
		return nil, fmt.Errorf("--port is between 1 and %d, so that there is room for the admin listeners 1000 above", MaxPort)
	}
	if len(words) == 0 {
		return o, nil
	}
	o.verb = words[0]
	if o.verb != "cut" && o.verb != "heal" {
		return nil, fmt.Errorf("unexpected argument %q; the demo takes none, or cut REGION, or heal REGION", o.verb)
	}
	if len(words) != 2 {
		return nil, fmt.Errorf("%s takes one region, such as eu-west", o.verb)
	}
	f.Visit(func(g *flag.Flag) {
		if g.Name != "port" {
			err = fmt.Errorf("--%s is for starting a demo, not for %s", g.Name, o.verb)
		}
	})
	o.region = words[1]
	return o, err
}

// controlAddr is where cuts are made.
func (o *demoOptions) controlAddr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port+ControlOffset))
}

// Command returns the command `demo`, which starts three regions in this process, or
// has those of another process cut or heal one.
func Command(newNode NewNode) cli.Command {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
		return command(ctx, newNode, args, stdout, stderr)
	}
}

func command(ctx context.Context, newNode NewNode, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := demoFlags(args, stderr)
	if err != nil {
		return cli.ExitUsage, err
	}
	program := cli.HowStarted()
	if o.verb != "" {
		return changeDemo(ctx, o, program, stdout)
	}
	// Before anything is bound: from here on Ctrl-C ends it in order. A second one
	// does not wait.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	handler, closeLog, err := demoLog(o.log)
	if err != nil {
		return cli.ExitUsage, err
	}
	defer closeLog()
	t, err := newCluster(ctx, o, newNode, slog.New(handler))
	if err != nil {
		return cli.ExitUsage, demoPort(err, o.port)
	}
	fmt.Fprint(stdout, Banner(program, o.port))
	if err := t.run(ctx, NewScreen(stdout)); err != nil {
		return cli.ExitFailed, demoPort(err, o.port)
	}
	fmt.Fprintln(stdout, "\nThe demo has ended; nothing of it is left.")
	return cli.ExitOK, nil
}

func changeDemo(ctx context.Context, o *demoOptions, program string, stdout io.Writer) (int, error) {
	change, err := Ask(ctx, o.controlAddr(), o.verb, o.region)
	if errors.Is(err, ErrNotRunning) {
		return cli.ExitUsage, fmt.Errorf("%w: start one in another terminal with `%s demo`, or name its --port", err, program)
	}
	if err != nil {
		return cli.ExitUsage, err
	}
	fmt.Fprint(stdout, change.Scenario(program, o.port))
	return cli.ExitOK, nil
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
