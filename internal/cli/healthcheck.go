package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

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
	t.flags(c.Flags(), defaultAdmin, "admin")
	timeout := c.Flags().Duration("timeout", 2*time.Second, "how long to wait")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), *timeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url("/readyz"), http.NoBody)
		if err != nil {
			return fmt.Errorf("--addr: %w", err)
		}
		res, err := t.do(req)
		if err != nil {
			return Exit{ExitFailed, err}
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(res.Body, 4096)) // only shown
		fmt.Fprintln(c.OutOrStdout(), strings.TrimSpace(string(body)))
		if res.StatusCode != http.StatusOK {
			return Exit{Code: ExitFailed}
		}
		return nil
	}
	return c
}
