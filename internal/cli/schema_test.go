package cli

import (
	"testing"

	"github.com/regiond/regiond/region"
)

// What schema prints is the schema that region's tests hold against the parser, and nothing else.
func TestSchema(t *testing.T) {
	if got := invoke(t, "schema"); got.code != 0 || got.stdout != string(region.Schema) || got.stderr != "" {
		t.Errorf("exit %d, standard error %q, %d bytes; want the %d of the schema", got.code, got.stderr, len(got.stdout), len(region.Schema))
	}
}
