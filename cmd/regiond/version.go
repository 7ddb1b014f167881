package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// version is set by the Makefile (-ldflags "-X main.version=…") for a release.
var version string

// buildVersion is the version and commit that this program was built from.
func buildVersion() (release, commit string) {
	release, commit = version, "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release, commit
	}
	if release == "" {
		release = info.Main.Version
	}
	if release == "" || release == "(devel)" {
		release = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	return release, commit
}

func printVersion(_ context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	f := newFlags("version", "version [-o json]", stderr)
	format := outputFlag(f)
	if _, err := parse(f, args); err != nil {
		return exitUsage, err
	}
	release, commit := buildVersion()
	if *format == "json" {
		return exitOK, writeJSON(stdout, map[string]string{"version": release, "commit": commit, "go": runtime.Version()})
	}
	fmt.Fprintf(stdout, "regiond %s, commit %s, %s\n", release, commit, runtime.Version())
	return exitOK, nil
}
