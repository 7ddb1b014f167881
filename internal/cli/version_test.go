package cli

import (
	"encoding/json"
	"maps"
	"runtime"
	"testing"
)

// TestStartedBy: the command that the screen names is one that works where it
// was started.
func TestStartedBy(t *testing.T) {
	const path = "github.com/regiond/regiond/cmd/regiond"
	for _, c := range []struct {
		self, typed, version string
		inside               bool
		want                 string
	}{
		{"/usr/local/bin/regiond", "regiond", "v1.2.0", false, "regiond"},
		{"/home/a/regiond/bin/regiond", "bin/regiond", "(devel)", true, "bin/regiond"},
		{"/tmp/go-build123/b001/exe/regiond", "/tmp/go-build123/b001/exe/regiond", "(devel)", true, "go run ./cmd/regiond"},
		{"/tmp/go-build123/b001/exe/regiond", "/tmp/go-build123/b001/exe/regiond", "", false, "go run " + path},
		{"/tmp/go-build123/b001/exe/regiond", "/tmp/go-build123/b001/exe/regiond", "v1.2.0", false, "go run " + path + "@v1.2.0"},
	} {
		if got := startedBy(c.self, c.typed, path, c.version, c.inside); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestVersion: scripts read the names of the JSON; what the linker was given comes first.
func TestVersion(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if got := invoke(t, "version"); got.code != 0 || got.stdout != "regiond devel, commit unknown, "+runtime.Version()+", "+platform+"\n" {
		t.Errorf("%+v", got)
	}
	got := invoke(t, "version", "-o", "json")
	var v map[string]string
	if err := json.Unmarshal([]byte(got.stdout), &v); err != nil {
		t.Errorf("%+v: %v", got, err)
	}
	want := map[string]string{"version": "devel", "commit": "unknown", "date": "unknown", "go": runtime.Version(), "platform": platform}
	if !maps.Equal(v, want) {
		t.Errorf("%v, want %v", v, want)
	}
	linked := Build{Version: "v1.2.0", Commit: "abc", Date: "2026-11-28T07:00:00Z"}
	if b := ReadBuild(linked); b != linked {
		t.Errorf("%+v, want %+v", b, linked)
	}
}
