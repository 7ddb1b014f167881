package foreign_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// exposure is the highest exposure level that systemd-analyze may report, in tenths: below
// 2 it calls a service well protected.
const exposure = "20"

// TestUnit: systemd finds no mistake in the unit, and calls the service well protected.
func TestUnit(t *testing.T) {
	program, err := exec.LookPath("true") // any program that is there: verify looks for one
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "regiond.service")
	text := strings.Replace(read(t, "deploy/regiond.service"), "ExecStart=regiond ", "ExecStart="+program+" ", 1)
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", "--man=no", unit},
		{"security", "--offline=true", "--no-pager", "--threshold=" + exposure, unit},
	} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}
