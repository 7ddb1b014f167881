package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
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
