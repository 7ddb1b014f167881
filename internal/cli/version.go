package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// Build is what this program was built from.
type Build struct {
	Version string
	Commit  string // "unknown" outside a checkout
}

// ReadBuild asks the runtime. release, unless it is "", is the version that a
// release was linked with.
func ReadBuild(release string) Build {
	b := Build{Version: release, Commit: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	return b
}

// Print is the command `version`.
func (b Build) Print(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	f := NewFlags("version", "version [-o json]", stderr)
	format := OutputFlag(f)
	if _, err := Parse(f, args); err != nil {
		return ExitUsage, err
	}
	if *format == "json" {
		return ExitOK, writeJSON(stdout, map[string]string{"version": b.Version, "commit": b.Commit, "go": runtime.Version()})
	}
	fmt.Fprintf(stdout, "regiond %s, commit %s, %s\n", b.Version, b.Commit, runtime.Version())
	return ExitOK, nil
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
