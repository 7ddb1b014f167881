package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Build is what this program was built from.
type Build struct {
	Version string
	Commit  string // "unknown" without a checkout
	Date    string // when Commit was made, RFC 3339 in UTC, so that one commit gives one program; "unknown" without a checkout
}

// ReadBuild asks the runtime for what linked, what the linker was given (-X), leaves empty.
func ReadBuild(linked Build) Build {
	b := linked
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "(devel)" {
			b.Version = cmp.Or(b.Version, info.Main.Version)
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = cmp.Or(b.Commit, s.Value)
			case "vcs.time":
				b.Date = cmp.Or(b.Date, s.Value)
			}
		}
	}
	return Build{Version: cmp.Or(b.Version, "devel"), Commit: cmp.Or(b.Commit, "unknown"), Date: cmp.Or(b.Date, "unknown")}
}

// String is a build in a line.
func (b Build) String() string {
	return fmt.Sprintf("%s, commit %s, %s, %s", b.Version, b.Commit, runtime.Version(), platform)
}

// platform is what it was built for.
const platform = runtime.GOOS + "/" + runtime.GOARCH

// Command is the command `version`.
func (b Build) Command() *cobra.Command {
	c := &cobra.Command{
		Use:     "version",
		Short:   "What this program was built from",
		Example: "  regiond version -o json",
		Args:    cobra.ArbitraryArgs,
	}
	var format string
	outputFlag(c, &format)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if format == "json" {
			return writeJSON(c.OutOrStdout(), map[string]string{
				"version": b.Version, "commit": b.Commit, "date": b.Date, "go": runtime.Version(), "platform": platform,
			})
		}
		fmt.Fprintln(c.OutOrStdout(), "regiond "+b.String())
		return nil
	}
	return c
}

// HowStarted is how a person who started this program can start it again: by the
// word that was typed, or through go run when that was it.
func HowStarted() string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return os.Args[0]
	}
	_, err = os.Stat(filepath.Join("cmd", "regiond", "main.go"))
	return startedBy(self, os.Args[0], info.Path, info.Main.Version, err == nil)
}

// startedBy decides it: self is the program's file, typed the word it was called
// by, path and version what it was built from, and inside is whether this is
// the folder of its source.
func startedBy(self, typed, path, version string, inside bool) string {
	if !strings.Contains(filepath.ToSlash(self), "/go-build") { // where go run puts what it builds
		return typed
	}
	switch {
	case version != "" && version != "(devel)":
		return "go run " + path + "@" + version
	case inside:
		return "go run ./cmd/regiond"
	default:
		return "go run " + path
	}
}
