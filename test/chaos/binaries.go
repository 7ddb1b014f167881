//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Binaries are the programs that a world is made of.
type Binaries struct {
	Regiond, NATS, Redis string
	// Bare is this test binary, which serves as the bare handler when BareEnv is set.
	Bare string
}

// BareEnv makes of a test binary the bare handler at the address that it holds.
const BareEnv = "REGIOND_CHAOS_BARE"

// Build compiles what has to be compiled into dir: regiond, and the nats-server that
// belongs to the library in go.mod, from its own module with its own dependencies.
func Build(dir string) (Binaries, error) {
	b := Binaries{Regiond: filepath.Join(dir, "regiond"), NATS: filepath.Join(dir, "nats-server")}
	var err error
	if b.Redis, err = exec.LookPath("redis-server"); err != nil {
		return b, fmt.Errorf("redis-server is needed: %w", err)
	}
	if b.Bare, err = os.Executable(); err != nil {
		return b, err
	}
	if _, err := run("go", "build", "-o", b.Regiond, "github.com/regiond/regiond/cmd/regiond"); err != nil {
		return b, err
	}
	// regiond's build has downloaded it: a module that is not there has no directory.
	module, err := run("go", "list", "-m", "-f", "{{.Dir}}", "github.com/nats-io/nats-server/v2")
	if err != nil {
		return b, err
	}
	// Not as a package of our module: its main has dependencies that we have no other use for.
	_, err = run("go", "build", "-C", strings.TrimSpace(module), "-o", b.NATS, ".")
	return b, err
}

func run(name string, args ...string) (string, error) {
	said, err := exec.CommandContext(context.Background(), name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(said), nil
}

// Needs names what this machine lacks to run scenarios, "" for nothing.
func Needs() string {
	var lacks []string
	if os.Geteuid() != 0 {
		lacks = append(lacks, "root, for network namespaces")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		lacks = append(lacks, "/dev/net/tun, for lines between them")
	}
	for _, program := range []string{"redis-server", "gcc", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			lacks = append(lacks, program+" on PATH")
		}
	}
	return strings.Join(lacks, "; ")
}
