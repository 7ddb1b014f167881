// Package ports gives tests loopback ports that stay theirs until they end: no other
// test takes them, in this process or another, and the system gives them to no client.
package ports

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// Ports lie below the range that Linux hands to outgoing connections (32768 and up):
// there, a client that keeps dialling a killed server could be given the server's own
// port. What is added to a port by its user, 10,000 for the bus of a Redis Cluster,
// leads to no other's port and stays below that range too.
const (
	lowest, highest = 12_000, 21_999
	attempts        = 200
)

// TB is what this package needs of a testing.TB, so that a program may take ports too.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// Addr is the loopback address of a port that Take found.
func Addr(t TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Take(t)))
}

// Take returns a port that is free, and with it the port each offset above it. They are
// the test's own until it ends.
func Take(t TB, offsets ...int) int {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "regiond-test-ports")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	offsets = append(offsets, 0)
	slices.Sort(offsets)
	offsets = slices.Compact(offsets)
	for range attempts {
		base := lowest + rand.IntN(highest-lowest+1)
		if held := hold(dir, offsets, base); held != nil {
			t.Cleanup(func() { release(held) })
			return base
		}
	}
	t.Fatal(fmt.Sprintf("no free port between %d and %d in %d attempts", lowest, highest, attempts))
	return 0
}

// hold locks a file for each port; nil if one is another's or something listens there.
func hold(dir string, offsets []int, base int) []*os.File {
	var held []*os.File
	for _, offset := range offsets {
		f := lock(filepath.Join(dir, strconv.Itoa(base+offset)))
		if f == nil || !refuses(base+offset) {
			release(append(held, f))
			return nil
		}
		held = append(held, f)
	}
	return held
}

// lock takes the lock of a file; nil if another has it. The kernel ends the lock with the
// process, and a child does not inherit it.
func lock(name string) *os.File {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a number in a directory of ours
	if err != nil {
		return nil
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		release([]*os.File{f})
		return nil
	}
	return f
}

// refuses is whether nothing listens at a port. It checks by dialling: a listener opened
// and closed to find out could live on for a moment in a process that another test is
// just starting, and be in the way.
func refuses(port int) bool {
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func release(held []*os.File) {
	for _, f := range held {
		if f != nil {
			_ = f.Close() // it was never written
		}
	}
}
