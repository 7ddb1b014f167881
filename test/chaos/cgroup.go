//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroups is a way to take processor time from processes: version 1 or 2, as found.
type cgroups struct {
	root, file, value string // where, and what limits to a share
	procs             string
}

func findCgroups(percent int) (cgroups, error) {
	v1, v2 := "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(v1, "cpu.cfs_quota_us")); err == nil {
		return cgroups{root: v1, file: "cpu.cfs_quota_us", value: strconv.Itoa(1000 * percent), procs: "cgroup.procs"}, nil
	}
	control, err := os.ReadFile(filepath.Join(v2, "cgroup.subtree_control"))
	if err == nil && strings.Contains(string(control), "cpu") {
		return cgroups{root: v2, file: "cpu.max", value: fmt.Sprintf("%d 100000", 1000*percent), procs: "cgroup.procs"}, nil
	}
	return cgroups{}, errors.New("taking processor time needs the cpu controller of cgroups, version 1 or 2")
}

// Starve limits a region's regiond to that percentage of one processor.
func (w *World) Starve(name string, percent int) Fault {
	r := w.region(name)
	var c cgroups
	dir := ""
	return Fault{
		Name: fmt.Sprintf("regiond of %s has %d %% of a processor", name, percent),
		Inject: func() (err error) {
			if c, err = findCgroups(percent); err != nil {
				return err
			}
			for _, dir := range abandoned(c.root) {
				_ = os.Remove(dir) // one with processes in it stays
			}
			dir = filepath.Join(c.root, fmt.Sprintf("%s%d-%s", workPrefix, os.Getpid(), name))
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			return errors.Join(
				os.WriteFile(filepath.Join(dir, c.file), []byte(c.value), 0o600),
				c.move(r, dir),
			)
		},
		Heal: func() error {
			if dir == "" {
				return nil
			}
			return errors.Join(c.move(r, c.root), os.Remove(dir))
		},
	}
}

// move puts a region's regiond into a group.
func (c cgroups) move(r *Region, dir string) error {
	pid := strconv.Itoa(r.regiond.cmd.Process.Pid)
	return os.WriteFile(filepath.Join(dir, c.procs), []byte(pid), 0o600)
}
