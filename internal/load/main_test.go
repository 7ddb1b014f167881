package load

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain holds every test to what Run promises: when it has returned, nothing of
// it is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
