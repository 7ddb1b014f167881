package cli

import "testing"

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
