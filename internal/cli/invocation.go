package cli

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

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
// by, path and version what it was built from, and inside tells whether this is
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
