package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// standIn is one image that can be built here.
type standIn struct {
	tag string
	// contents describes it, for its label and for people. The image is built again if
	// it changes, so it has the versions of what changes.
	contents string
	// config are the lines of a Dockerfile after the files: user, environment, command.
	config string
	// owned are folders that belong to the image's user, each "uid:gid /folder".
	owned []string
	// files fills the image; nil when there is nothing to build it of.
	files func(context.Context, *tree) error
	work  string // a folder of its own, for the time of the build
}

// build makes the image, with busybox for what health checks and build steps call.
func (s *standIn) build(ctx context.Context) error {
	defer os.RemoveAll(s.work)
	dir := filepath.Join(s.work, "context")
	if err := os.MkdirAll(filepath.Join(dir, "empty"), 0o755); err != nil {
		return err
	}
	t := &tree{root: filepath.Join(dir, "root"), scratch: s.work}
	for _, step := range []func(context.Context, *tree) error{base, s.files} {
		if err := step(ctx, t); err != nil {
			return err
		}
	}
	var d strings.Builder
	fmt.Fprintln(&d, "FROM scratch\nCOPY root /")
	for _, o := range s.owned {
		owner, folder, _ := strings.Cut(o, " ")
		fmt.Fprintf(&d, "COPY --chown=%s empty %s\n", owner, folder)
	}
	fmt.Fprintf(&d, "LABEL %s=%q\nENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n%s\n",
		labelContents, s.contents, s.config)
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(d.String()), 0o644); err != nil {
		return err
	}
	return buildImage(ctx, s.tag, dir)
}
