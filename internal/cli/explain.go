package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// Explain is the command `explain`.
func Explain() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain TENANT",
		Short: "What a check would get now, and why",
		Long:  "Asks a running regiond what a check would get now, and why. It spends nothing.",
		Example: `  regiond explain acme
  regiond explain acme -d user=42 --cost 5 -o json`,
		Args:              oneTenant,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := c.Flags()
	dims := dimensionFlag(f)
	cost := f.Int64("cost", 1, "`units` that the check would spend")
	policy := policyFlag(c, "`policy` to ask, instead of the tenant's own")
	return calls(c, "data", func(c *cobra.Command, t *target, words []string) error {
		if words[0] == "" {
			return errors.New("the tenant is empty")
		}
		query := url.Values{"cost": {strconv.FormatInt(*cost, 10)}}
		for name, value := range dims {
			query.Set("dim."+name, value)
		}
		if *policy != "" {
			query.Set("policy", *policy)
		}
		var v struct {
			Explain struct {
				Sentences []string `json:"sentences"`
			} `json:"explain"`
		}
		path := "/v1/explain/" + url.PathEscape(words[0]) + "?" + query.Encode()
		return t.show(c, path, &v, func() bool { return len(v.Explain.Sentences) > 0 }, func(w io.Writer) {
			plain := strings.NewReplacer("−", "-", "÷", "/")
			for _, line := range v.Explain.Sentences {
				fmt.Fprintln(w, printable(plain.Replace(line)))
			}
		})
	})
}
