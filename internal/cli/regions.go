package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
)

// Regions is the command `regions`.
func Regions() *cobra.Command {
	c := calls(&cobra.Command{
		Use:   "regions",
		Short: "What a running regiond sees of the others",
		Long: `Shows what a running regiond sees of the other regions.
Exit code 0 in mode global, 1 in any other mode, 2 when it could not be asked.`,
		Example: `  regiond regions
  regiond regions -o json --addr http://eu-1:9090 --token-file token`,
		Args: NoArgs,
	}, "admin", func(c *cobra.Command, t *target, _ []string) error {
		var v status.Report
		known := func() bool { return v.Mode.Mode != "" }
		if err := t.show(c, "/v1/regions", &v, known, func(w io.Writer) { v.Print(w, time.Now()) }); err != nil {
			return err
		}
		if v.Mode.Mode != quota.ModeGlobal.String() {
			return Exit{Code: ExitFailed}
		}
		return nil
	})
	c.AddCommand(reopen())
	return c
}

// reopen is the command `regions reopen`.
func reopen() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "reopen NAME",
		Short: "Give a region that lost data its share back at once",
		Long: `Ends what a loss of data costs a region: its own share of each limit with max_overshoot is usable at once.
What was used of it before may be admitted once more, so windows of all regions may exceed the limit by that share.
Exit code 0 done, 1 not confirmed, 2 when there is nothing to reopen, or it could not be asked.`,
		Example: `  regiond regions reopen eu-west --addr http://eu-1:9090 --token-file token`,
		Args:    cobra.ExactArgs(1),
	}
	t.flags(c.Flags(), "admin")
	yes := c.Flags().Bool("yes", false, "do not ask")
	c.RunE = func(c *cobra.Command, args []string) error {
		var v status.Report
		if _, err := t.fetch(c.Context(), http.MethodGet, "/v1/regions", nil, &v, func() bool { return v.Mode.Mode != "" }); err != nil {
			return err
		}
		if v.Store.Lost != nil && v.Region == args[0] {
			fmt.Fprintf(c.OutOrStdout(), "Region %s lost data at %s. Reopened, it may admit its share of each limit with max_overshoot once more.\n",
				v.Region, v.Store.Lost.Format(time.RFC3339))
		}
		if !*yes {
			fmt.Fprint(c.OutOrStdout(), "Reopen it? Type yes: ")
			if line, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n'); strings.TrimSpace(line) != "yes" {
				return Exit{ExitFailed, errors.New("not reopened")}
			}
		}
		code, body, err := t.exchange(c.Context(), http.MethodPost, "/v1/reopen/"+url.PathEscape(args[0]), nil)
		switch {
		case err != nil:
			return err
		case code != http.StatusNoContent:
			return t.refused(code, body)
		}
		fmt.Fprintln(c.OutOrStdout(), "reopened")
		return nil
	}
	return c
}
