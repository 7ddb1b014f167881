package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

// Healthcheck is the command `healthcheck`: a container image without a shell uses it.
func Healthcheck() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit code 0 when a running regiond is ready",
		Long: `Asks a running regiond whether it is ready for traffic.
Exit code 0 ready, 1 not ready or nobody there.`,
		Example: `  regiond healthcheck
  regiond healthcheck --addr https://127.0.0.1:9090 --ca-file ca.pem`,
		Args: NoArgs,
	}
	t.flags(c.Flags(), "admin")
	c.Flags().DurationVar(&t.timeout, "timeout", checkTimeout, "how long to wait")
	c.RunE = func(c *cobra.Command, _ []string) error {
		code, body, err := t.exchange(c.Context(), http.MethodGet, "/readyz", nil)
		if err != nil {
			if addr := (*url.Error)(nil); errors.As(err, &addr) && addr.Op == "parse" {
				return err
			}
			return Exit{ExitFailed, err}
		}
		fmt.Fprintf(c.OutOrStdout(), "%.4096s\n", body)
		if code != http.StatusOK {
			return Exit{Code: ExitFailed}
		}
		return nil
	}
	return c
}
