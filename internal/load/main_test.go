package load

import (
	"testing"

	"github.com/regiond/regiond/test/leaks"
)

// TestMain holds every test to what Run promises: when it has returned, nothing of
// it is left.
func TestMain(m *testing.M) { leaks.Main(m) }
