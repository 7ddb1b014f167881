//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// workPrefix begins the name of a run's directory; its process and something random
// follow.
const workPrefix = "regiond-chaos-"

// Workplace makes a directory for all files of this run, temporary ones of its tests
// too, and removes those of runs that were killed. The caller removes it in the end.
func Workplace() (string, error) {
	old, err := filepath.Glob(filepath.Join(os.TempDir(), workPrefix+"*"))
	if err != nil {
		return "", err
	}
	for _, dir := range old {
		maker, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), workPrefix), "-")
		if _, err := os.Stat("/proc/" + maker); errors.Is(err, os.ErrNotExist) {
			_ = os.RemoveAll(dir) // what cannot be removed is in nobody's way
		}
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", workPrefix, os.Getpid()))
	if err != nil {
		return "", err
	}
	return dir, os.Setenv("TMPDIR", dir)
}
