package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/regiond/regiond/internal/load"
)

// benchOptions are the flags of `bench`.
type benchOptions struct {
	load.Options
	tokenFile string
	files     tlsFiles
	format    *string
}

// defaultTarget is where `regiond serve` listens without flags.
const defaultTarget = "http://127.0.0.1:8080"

func benchFlags(args []string, stderr io.Writer) (*benchOptions, error) {
	f := NewFlags("bench", "bench [--target URL]… [--rate N] [--for 10s] [--tenants N] [--zipf S] [--cost N|N-M] [flags]", stderr)
	o := &benchOptions{}
	f.Func("target", "data listener to ask; several share the rate, in turn (default "+defaultTarget+")", func(v string) error {
		target, err := load.ParseTarget(v)
		o.Targets = append(o.Targets, target)
		return err
	})
	f.Float64Var(&o.Rate, "rate", 1000, "checks per second, of all targets together; each is sent when it is due")
	f.DurationVar(&o.For, "for", 10*time.Second, "how long to measure, at most "+load.MaxFor.String())
	f.DurationVar(&o.Warmup, "warmup", 2*time.Second, "how long to send before that, uncounted")
	f.IntVar(&o.Tenants, "tenants", 1000, "how many tenants to ask for, by the names bench-1, bench-2, …")
	f.StringVar(&o.Prefix, "tenant-prefix", "bench-", "`text` that their names begin with")
	f.Float64Var(&o.Zipf, "zipf", 1, "how uneven they are: tenant k is asked for as 1/k^`s`; 0 is all alike")
	f.StringVar(&o.Policy, "policy", "", "policy to ask, instead of each tenant's own")
	o.Costs = load.Costs{Min: 1, Max: 1}
	f.Func("cost", "`units` of a check, or a range such as 1-5 (default 1)", func(v string) (err error) {
		o.Costs, err = load.ParseCosts(v)
		return err
	})
	f.IntVar(&o.MaxInFlight, "max-in-flight", 1000, "checks that may wait for an answer at once; what is due beyond is counted, not sent")
	f.DurationVar(&o.Timeout, "timeout", checkTimeout, "how long to wait for an answer")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the bearer token")
	o.files.flags(f)
	o.format = OutputFlag(f)
	f.BoolFunc("json", "the same as -o json", func(string) error { return f.Set("o", "json") })
	words, err := Parse(f, args)
	if err != nil {
		return nil, err
	}
	if len(words) > 0 {
		return nil, fmt.Errorf("unexpected argument %q; a target is named by --target", words[0])
	}
	if len(o.Targets) == 0 {
		o.Targets = []string{defaultTarget}
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	return o, nil
}

// Bench asks running regionds at a fixed rate and prints how they did. What it admits
// is charged, to tenants of its own. Exit code 0 when every check that was due was
// decided, 1 when some were not (shed, answered by a fail mode, failed), 2 when it could
// not begin.
func Bench(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := benchFlags(args, stderr)
	if err != nil {
		return ExitUsage, err
	}
	asker, err := o.asker()
	if err != nil {
		return ExitUsage, err
	}
	defer asker.Close()
	// The first Ctrl-C ends the run in order, a second one at once.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := o.probe(ctx, asker); err != nil {
		return ExitUsage, err
	}
	p := newProgressLine(stderr, o.Warmup+o.For)
	r, err := load.Run(ctx, o.Options, asker, p.show)
	p.clear()
	if err != nil {
		return ExitUsage, err
	}
	if *o.format == "json" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return ExitUsage, err
		}
		fmt.Fprintln(stdout, string(text))
	} else {
		r.Print(stdout)
	}
	if r.Decided < r.Due {
		return ExitFailed, nil
	}
	return ExitOK, nil
}

func (o *benchOptions) asker() (*load.HTTP, error) {
	token := ""
	if o.tokenFile != "" {
		text, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	trust, err := o.files.config()
	if err != nil {
		return nil, err
	}
	return load.NewHTTP(o.MaxInFlight, o.Timeout, token, trust), nil
}

// probe looks at each target without spending anything, so that a mistake costs one
// line and not a run.
func (o *benchOptions) probe(ctx context.Context, asker *load.HTTP) error {
	r := load.Request{Tenant: o.Prefix + "1", Policy: o.Policy, Cost: o.Costs.Max}
	for _, target := range o.Targets {
		if err := o.probeOne(ctx, asker, target, &r); err != nil {
			return err
		}
	}
	return nil
}

func (o *benchOptions) probeOne(ctx context.Context, asker *load.HTTP, target string, r *load.Request) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := asker.Probe(ctx, target, r)
	var refused *load.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return errors.New("ended before it began")
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("--target %s: no answer within %v; is a regiond listening there, and is the way to it open?", target, checkTimeout)
	case !errors.As(err, &refused):
		return fmt.Errorf("--target %s: %w; start a regiond there, as in `%s serve`, or name another", target, err, HowStarted())
	case refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden:
		return fmt.Errorf("--target %s: %w; name a file with a token by --token-file", target, err)
	case refused.Status == http.StatusServiceUnavailable: // of a regiond that cannot decide
		return fmt.Errorf("--target %s: %w", target, err)
	}
	for pointer, flag := range map[string]string{"#/cost": "cost", "#/policy": "policy", "#/tenant": "tenant-prefix"} {
		if refused.Pointer == pointer {
			return fmt.Errorf("--%s: %s (reported by %s)", flag, refused.Detail, target)
		}
	}
	return fmt.Errorf("--target %s is not the address of a data listener: %w", target, err)
}

// progressLine shows on a terminal, in one line that is rewritten, how far a bench has
// come. Anywhere else it writes nothing. It belongs to one goroutine at a
// time.
type progressLine struct {
	out   io.Writer // nil where there is no terminal
	all   time.Duration
	drawn bool
}

func newProgressLine(w io.Writer, all time.Duration) *progressLine {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progressLine{out: w, all: all}
	}
	return &progressLine{}
}

// barWidth leaves room for the rest within 80 columns.
const barWidth = 16

func (l *progressLine) show(p load.Progress) {
	if l.out == nil {
		return
	}
	l.drawn = true
	fmt.Fprint(l.out, "\r"+l.text(p)+"\x1b[K")
}

// text is one line:
//
//	[######          ]  5s of 12s  4998 answered, 120 denied, 0 failed, 3 waiting
func (l *progressLine) text(p load.Progress) string {
	full := min(barWidth, int(barWidth*p.Passed/l.all))
	text := fmt.Sprintf("[%-*s] %3.0fs of %v  %d answered, %d denied, %d failed, %d waiting",
		barWidth, strings.Repeat("#", full), p.Passed.Seconds(), l.all, p.Answered, p.Denied, p.Failed, p.InFlight)
	if p.Shed > 0 {
		text += fmt.Sprintf(", %d shed", p.Shed)
	}
	if p.Unsent > 0 {
		text += fmt.Sprintf(", %d unsent", p.Unsent)
	}
	if p.Warming {
		text += ", warming up"
	}
	return text
}

// clear takes the line away: the result follows.
func (l *progressLine) clear() {
	if l.drawn {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
}
