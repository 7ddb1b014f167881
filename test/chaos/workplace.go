//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// workPrefix begins the name of a run's directory; its process and something random follow.
const workPrefix = "regiond-chaos-"

// Workplace makes a directory for all files of this run, temporary ones of its tests
// too, and removes those of runs that were killed. The caller removes it in the end.
func Workplace() (string, error) {
	for _, dir := range abandoned(os.TempDir()) {
		_ = os.RemoveAll(dir) // what cannot be removed does no harm
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", workPrefix, os.Getpid()))
	if err != nil {
		return "", err
	}
	return dir, os.Setenv("TMPDIR", dir)
}

// abandoned are what runs that have ended left in a folder.
func abandoned(folder string) []string {
	all, _ := filepath.Glob(filepath.Join(folder, workPrefix+"*"))
	return slices.DeleteFunc(all, func(dir string) bool {
		maker, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), workPrefix), "-")
		_, err := os.Stat("/proc/" + maker)
		return !errors.Is(err, os.ErrNotExist)
	})
}
