package cli

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
)

// Regions is the command `regions`.
func Regions() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "regions",
		Short: "What a running regiond sees of the others",
		Long: `Shows what a running regiond sees of the other regions.
Exit code 0 in mode global, 1 in any other mode, 2 when it could not be asked.`,
		Example: `  regiond regions
  regiond regions -o json --addr http://eu-1:9090 --token-file token`,
		Args: NoArgs,
	}
	t.flags(c.Flags(), defaultAdmin, "admin")
	format := outputFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		var v status.Report
		known := func() bool { return v.Mode.Mode != "" }
		if err := t.show(c, "/v1/regions", *format, &v, known, func(w io.Writer) { v.Print(w, time.Now()) }); err != nil {
			return err
		}
		if v.Mode.Mode != quota.ModeGlobal.String() {
			return Exit{Code: ExitFailed}
		}
		return nil
	}
	return c
}
