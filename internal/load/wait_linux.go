package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waiter waits until a moment, to some ten microseconds. Go's own timers wake up in
// whole milliseconds when nothing else happens; at thousands of requests a second
// half a millisecond of that would show in every latency. The kernel's timer, read
// as a file, wakes up exactly and blocks no thread. It belongs to one goroutine.
type waiter struct {
	fd   int
	file *os.File
	buf  []byte // a timer's file has eight bytes: how often it went off
}

func newWaiter() (*waiter, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	return &waiter{fd: fd, file: os.NewFile(uintptr(fd), "timer"), buf: make([]byte, 8)}, nil
}

func (w *waiter) close() { _ = w.file.Close() } // nothing was written to it

// until returns at that moment, or before when ctx ends. An error means that it
// cannot wait.
func (w *waiter) until(ctx context.Context, at time.Time) error {
	left := time.Until(at)
	if left <= 0 {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := unix.TimerfdSettime(w.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(left.Nanoseconds())}, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	if _, err := w.file.Read(w.buf); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("wait for a timer: %w", err)
	}
	return nil
}
