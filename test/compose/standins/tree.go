package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// tree is the root folder of an image that is being filled, and a folder for what
// is needed on the way.
type tree struct{ root, scratch string }

// copy copies a file into the tree. Links are followed.
func (t *tree) copy(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return copyFile(from, filepath.Join(t.root, to), info.Mode().Perm())
}

// copyAll copies a folder into the tree.
func (t *tree) copyAll(ctx context.Context, from, to string) error {
	target := filepath.Join(t.root, to)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	_, err := output(exec.CommandContext(ctx, "cp", "-RL", from, target))
	return err
}

func copyFile(from, to string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, mode|0o444)
}

// write writes a file into the tree.
func (t *tree) write(to, text string) error {
	target := filepath.Join(t.root, to)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, []byte(text), 0o644)
}

// link makes a symbolic link.
func (t *tree) link(target, name string) error {
	name = filepath.Join(t.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.Symlink(target, name)
}

// library finds the paths in what ldd prints.
var library = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// program copies a program and the libraries that it is linked with, each to
// where it looks for them.
func (t *tree) program(ctx context.Context, from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	if err := t.copy(from, to); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "ldd", from).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && strings.Contains(string(out), "not a dynamic executable") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ldd %s: %w: %s", from, err, out)
	}
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		if err := t.copy(m[1], m[1]); err != nil {
			return err
		}
	}
	return nil
}

// installed copies a program of this machine.
func (t *tree) installed(ctx context.Context, name, to string) error {
	from, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("neither a registry nor this machine has it; run scripts/test-deps: %w", err)
	}
	return t.program(ctx, from, to)
}

// base is what all stand-ins have: a shell, wget, certificates, a place for
// temporary files.
func base(ctx context.Context, t *tree) error {
	files, err := t.unpack(ctx, "busybox")
	if err != nil {
		return err
	}
	if err := t.program(ctx, filepath.Join(files, "bin/busybox"), "/bin/busybox"); err != nil {
		return err
	}
	list, err := output(exec.CommandContext(ctx, filepath.Join(files, "bin/busybox"), "--list"))
	if err != nil {
		return err
	}
	for _, applet := range strings.Fields(list) {
		if applet == "busybox" {
			continue
		}
		if err := t.link("busybox", "/bin/"+applet); err != nil {
			return err
		}
	}
	const certificates = "/etc/ssl/certs/ca-certificates.crt"
	if err := t.copy(certificates, certificates); err != nil {
		return fmt.Errorf("install ca-certificates: %w", err)
	}
	if err := t.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"); err != nil {
		return err
	}
	return t.write("/etc/group", "root:x:0:\nnobody:x:65534:\n")
}

// unpack fetches a Debian package and lays out its files, without installing it.
func (t *tree) unpack(ctx context.Context, name string) (string, error) {
	dir := filepath.Join(t.scratch, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	fetch := exec.CommandContext(ctx, "apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", name)
	fetch.Dir = dir
	if _, err := output(fetch); err != nil {
		return "", fmt.Errorf("fetch Debian's package %s (is `apt-get update` due?): %w", name, err)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("fetch Debian's package %s: %d files came", name, len(debs))
	}
	files := filepath.Join(dir, "files")
	_, err = output(exec.CommandContext(ctx, "dpkg-deb", "--extract", debs[0], files))
	return files, err
}
