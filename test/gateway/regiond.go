//go:build unix

package gateway

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/test/redisserver"
)

// Build builds regiond from the repository at root, and returns the path of the
// program. Linking takes most of the time of a test, so all that build the same
// sources share one file below bin/: go leaves a program that is up to date as it is.
func Build(t *testing.T, root string) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join(root, "bin", "test"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // and so the lock ends
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(folder, "regiond")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/regiond")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build regiond: %v\n%s", err, out)
	}
	return binary
}

// Regiond is the program on a real redis-server.
type Regiond struct {
	*Process
	// Addr is the data listener's, which the gateway calls.
	Addr string
	// Admin is the admin listener's.
	Admin string
	// GRPC is that of Envoy's services; "" where the example has no ratelimit.yaml.
	GRPC string

	launch func(t *testing.T) *Process
}

// StartRegiond starts redis-server and regiond on an example's topology.yaml, with
// nothing changed but the addresses and by the edits, and waits until regiond is ready. The budget
// of Redis is long: on a busy machine an answer that misses the usual 10 ms would
// be decided in memory, and a count would be off.
func StartRegiond(t *testing.T, binary, topology string, edits ...Edit) *Regiond {
	t.Helper()
	return startRegiond(t, binary, topology, []string{"--redis-budget", "5s", "--deadline", "6s"}, edits...)
}

// startRegiond is StartRegiond with the flags of an operator.
func startRegiond(t *testing.T, binary, topology string, flags []string, edits ...Edit) *Regiond {
	t.Helper()
	dir := t.TempDir()
	addrs := FreeAddrs(t, 2)
	redis := redisserver.Start(t, redisserver.Options{})
	r := &Regiond{Addr: addrs[0], Admin: addrs[1]}
	if _, err := os.Stat("ratelimit.yaml"); err == nil {
		r.GRPC = FreeAddrs(t, 1)[0]
		Render(t, "ratelimit.yaml", dir)
		edits = append(edits, Edit{Old: "grpc: 127.0.0.1:8091", New: "grpc: " + r.GRPC})
	}
	file := Render(t, topology, dir, append([]Edit{
		{Old: "http: 127.0.0.1:8080", New: "http: " + addrs[0]},
		{Old: "admin: 127.0.0.1:9090", New: "admin: " + addrs[1]},
		{Old: "127.0.0.1:6379", New: redis.Addr()},
	}, edits...)...)
	r.launch = func(t *testing.T) *Process {
		t.Helper()
		p := Run(t, dir, binary, syscall.SIGINT, append([]string{"serve", "--config", file, "--region", "eu-west"}, flags...)...)
		p.Await(t, r.ready)
		return p
	}
	r.Process = r.launch(t)
	return r
}

// Restart starts another process in the place of one that has ended.
func (r *Regiond) Restart(t *testing.T) {
	t.Helper()
	r.Process = r.launch(t)
}

// Freeze suspends the process until the test ends: the kernel accepts connections
// to it, and nothing answers them.
func (r *Regiond) Freeze(t *testing.T) {
	t.Helper()
	r.Signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { _ = r.cmd.Process.Signal(syscall.SIGCONT) })
	for r.ready() == nil { // the signal is on its way
		continue
	}
}

func (r *Regiond) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := Get(ctx, "http://"+r.Admin+"/readyz")
	return err
}
