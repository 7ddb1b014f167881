package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regiond/regiond/internal/load"
)

// checkTimeout is far above the 50 ms in which a regiond answers.
const checkTimeout = 2 * time.Second

// Check is the command `check`.
func Check() *cobra.Command {
	c := &cobra.Command{
		Use:   "check TENANT",
		Short: "Ask a running regiond once",
		Long: `Asks a running regiond whether a request may pass, which spends units.
Exit code 0 allowed, 1 denied, 2 no decision.`,
		Example: `  regiond check acme
  regiond check acme -d user=42 -d route=login --cost 5
  regiond check acme -o json --addr https://eu-1:8080 --token-file token`,
		Args:              oneTenant,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	dims := dimensionFlag(f)
	cost := f.String("cost", "1", "`units` to spend")
	policy := policyFlag(c, "`policy` to ask, instead of the tenant's own")
	key := f.String("idempotency-key", "", "makes a repeated call free for a minute")
	return calls(c, "data", func(c *cobra.Command, t *target, words []string) error {
		t.idempotencyKey = *key
		body, err := json.Marshal(struct {
			Tenant     string            `json:"tenant"`
			Cost       json.Number       `json:"cost"`
			Dimensions map[string]string `json:"dimensions,omitempty"`
			Policy     string            `json:"policy,omitempty"`
		}{words[0], json.Number(*cost), dims, *policy})
		if err != nil {
			return fmt.Errorf("--cost %s is not a number", *cost)
		}
		code, text, err := t.exchange(c.Context(), http.MethodPost, "/v1/check", body)
		if err != nil {
			return err
		}
		if t.format == "json" {
			fmt.Fprintln(c.OutOrStdout(), string(text))
		}
		a, exit, err := readAnswer(code, text)
		if err == nil && t.format != "json" {
			printAnswer(&a, c.OutOrStdout(), c.ErrOrStderr())
		}
		if exit == ExitOK {
			return nil
		}
		return Exit{exit, err}
	})
}

// dimensionFlag is -d, and what it collects.
func dimensionFlag(f *pflag.FlagSet) map[string]string {
	dims := map[string]string{}
	f.FuncP("dimension", "d", "a dimension as `name=value`; may be given several times", func(v string) error {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return errors.New("is name=value")
		}
		if _, twice := dims[name]; twice {
			return fmt.Errorf("%s is given twice", name)
		}
		dims[name] = value
		return nil
	})
	return dims
}

// readAnswer returns an answer and the exit code that it stands for. An error means
// that regiond did not give it, whatever its status: there may be a proxy on the way,
// or another server on the port.
func readAnswer(code int, text []byte) (load.Answer, int, error) {
	var a load.Answer
	if json.Unmarshal(text, &a) == nil {
		switch {
		case !decided(&a) && isProblem(a.Type): // neither yes nor no
			return a, ExitUsage, nil
		case a.Basis != "" && a.Allowed && code == http.StatusOK:
			return a, ExitOK, nil
		case a.Basis != "" && !a.Allowed && (code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable):
			return a, ExitFailed, nil
		}
	}
	return a, ExitUsage, fmt.Errorf("status %d, and the answer is not regiond's: %.200q", code, text)
}

// decided is false without a decision, and for a check that was shed.
func decided(a *load.Answer) bool { return a.Basis != "" && (a.Allowed || a.Basis != "shed") }

// isProblem knows the types of problems that come without a decision.
func isProblem(kind string) bool {
	return strings.HasPrefix(kind, "urn:regiond:problem:") || strings.HasSuffix(kind, "#temporary-reduced-capacity")
}

// printAnswer gives an answer in one line for a person, and what is wrong with a request
// in a few.
func printAnswer(a *load.Answer, stdout, stderr io.Writer) {
	if !decided(a) {
		fmt.Fprintf(stderr, "%s: %s\n", a.Title, a.Detail)
		for _, e := range a.Errors {
			fmt.Fprintf(stderr, "  %s %s\n", e.Pointer, e.Detail)
		}
		return
	}
	word := "allowed"
	switch {
	case a.WouldDeny:
		word = "allowed, would be denied"
	case !a.Allowed:
		word = "denied"
	}
	line := fmt.Sprintf("%s  %s.%s: %d of %d left", word, a.Policy, a.Name, a.Remaining, a.Limit)
	switch {
	case a.Basis == "shed":
		line = fmt.Sprintf("%s  policy %s, undecided", word, a.Policy)
	case a.Name == "":
		line = fmt.Sprintf("%s  no limit of policy %s applies", word, a.Policy)
	}
	if a.RetryAfterMS > 0 {
		line += fmt.Sprintf(", retry after %v", time.Duration(a.RetryAfterMS)*time.Millisecond)
	}
	line += fmt.Sprintf("  (basis %s, mode %s", a.Basis, a.Mode)
	if a.Reason != "" {
		line += ", " + a.Reason
	}
	fmt.Fprintln(stdout, line+")")
}
