package cli

import (
	"github.com/spf13/cobra"

	"github.com/regiond/regiond/region"
)

// Schema is the command `schema`.
func Schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a topology, for editors",
		Long: `Prints the JSON Schema (draft 2020-12) of a topology, with what each key means. An editor
with a YAML language server completes keys by it, after this line at the top of the file:

  # yaml-language-server: $schema=topology.schema.json

validate knows more rules than the schema.`,
		Example: "  regiond schema > topology.schema.json",
		Args:    NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(region.Schema)
			return err
		},
	}
}
