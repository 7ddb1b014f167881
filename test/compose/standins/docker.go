package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Labels of our own images.
const (
	labelContents = "org.regiond.stand-in"
	labelStage    = "org.regiond.stage"              // of the Dockerfile's first stage
	labelTitle    = "org.opencontainers.image.title" // of regiond's own image
	labelProject  = "com.docker.compose.project"     // of Compose
	testProject   = "regiond-test-"                  // begins the projects of the test
)

// pullTimeout is how long one image may take to arrive.
const pullTimeout = 5 * time.Minute

// docker runs the client and returns what it complained of.
func docker(ctx context.Context, args ...string) error {
	_, err := dockerOutput(ctx, args...)
	return err
}

func dockerOutput(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "docker", args...))
}

// output runs a command; an error carries the last lines of what it wrote.
func output(cmd *exec.Cmd) (string, error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(complaint.String()), "\n")
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[:min(3, len(cmd.Args))], " "), err, strings.Join(lines[max(0, len(lines)-3):], " / "))
	}
	return strings.TrimSpace(out.String()), nil
}

// image is what the engine has under a tag.
type image struct {
	there    bool
	contents string // of a stand-in; empty for the real one
}

func inspect(ctx context.Context, tag string) (image, error) {
	id, err := dockerOutput(ctx, "image", "ls", "--quiet", tag)
	if err != nil || id == "" {
		return image{}, err
	}
	text, err := dockerOutput(ctx, "image", "inspect", "--format", "{{json .Config.Labels}}", tag)
	if err != nil {
		return image{}, err
	}
	var labels map[string]string
	if err := json.Unmarshal([]byte(text), &labels); err != nil {
		return image{}, fmt.Errorf("read the labels of %s: %w", tag, err)
	}
	return image{there: true, contents: labels[labelContents]}, nil
}

// pull reports whether a registry had the image. Why not is of no interest: a
// stand-in takes its place.
func pull(ctx context.Context, tag string) bool {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	return docker(ctx, "pull", "--quiet", tag) == nil
}

// buildImage builds with the classic builder, which needs no image of its own.
func buildImage(ctx context.Context, tag, folder string) error {
	cmd := exec.CommandContext(ctx, "docker", "build", "--quiet", "--tag", tag, folder)
	cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	_, err := output(cmd)
	return err
}

// clean removes what is ours and nothing else: a deployment that runs keeps the
// images that it uses, and the output reports them.
func clean(ctx context.Context, out io.Writer) error {
	if err := cleanTests(ctx, out); err != nil {
		return err
	}
	tags, err := dockerOutput(ctx, "image", "ls", "--filter", "label="+labelContents, "--filter", "dangling=false", "--format", "{{.Repository}}:{{.Tag}}")
	if err != nil {
		return err
	}
	regiond, err := dockerOutput(ctx, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "regiond")
	if err != nil {
		return err
	}
	for _, tag := range strings.Fields(regiond + "\n" + tags) {
		if err := docker(ctx, "image", "rm", tag); err != nil {
			fmt.Fprintf(out, "%-32s kept: %v\n", tag, err)
			continue
		}
		fmt.Fprintf(out, "%-32s removed\n", tag)
	}
	for _, label := range []string{labelStage, labelContents, labelTitle + "=regiond"} {
		if err := docker(ctx, "image", "prune", "--force", "--filter", "label="+label); err != nil {
			return err
		}
	}
	return nil
}

// cleanTests removes what a test that was killed could not.
func cleanTests(ctx context.Context, out io.Writer) error {
	for _, kind := range []struct{ list, remove []string }{
		{[]string{"ps", "--all"}, []string{"rm", "--force", "--volumes"}},
		{[]string{"network", "ls"}, []string{"network", "rm"}},
		{[]string{"volume", "ls"}, []string{"volume", "rm"}},
	} {
		name := "{{.Name}}"
		if kind.list[0] == "ps" {
			name = "{{.Names}}"
		}
		list, err := dockerOutput(ctx, append(kind.list, "--filter", "label="+labelProject, "--format", name)...)
		if err != nil {
			return err
		}
		for _, found := range strings.Fields(list) {
			if !strings.HasPrefix(found, testProject) {
				continue
			}
			if err := docker(ctx, append(kind.remove, found)...); err != nil {
				return err
			}
			fmt.Fprintf(out, "%-32s removed\n", found)
		}
	}
	return nil
}
