package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// standIn is one image that can be built here.
type standIn struct {
	tag      string
	contents string // what is in it, for the label and for people
	// config are the lines of a Dockerfile after the files: user, environment, command.
	config string
	// owned are folders that belong to the image's user, each "uid:gid /folder".
	owned []string
	// inputs names what the image is made of by path or by a line of text; the
	// image is built again when they change.
	inputs func(context.Context) ([]string, error)
	// files fills the image; nil when there is nothing to build it of.
	files func(context.Context, *tree) error
	work  string // a folder of its own, for the time of the build
}

// recipe is part of every fingerprint: raise it when a change of this program
// changes images.
const recipe = "1"

// fingerprint is a hash of all that the image is made of.
func (s *standIn) fingerprint(ctx context.Context) (string, error) {
	inputs, err := s.inputs(ctx)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, recipe, s.tag, s.contents, s.config, s.owned)
	for _, in := range inputs {
		fmt.Fprintln(h, in)
		if !filepath.IsAbs(in) {
			continue
		}
		if err := hashFile(h, in); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

func hashFile(h io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(h, f)
	return err
}

// build makes the image, with busybox for what health checks and build steps call.
func (s *standIn) build(ctx context.Context, fingerprint string) error {
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
	fmt.Fprintf(&d, "LABEL %s=%q %s=%q\nENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n%s\n",
		labelContents, s.contents, labelFingerprint, fingerprint, s.config)
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(d.String()), 0o644); err != nil {
		return err
	}
	return buildImage(ctx, s.tag, dir)
}
