//go:build unix

package daemon

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestStopsWhileAReloadHangs: a file that cannot be read to its end, here a pipe that
// nobody closes, keeps neither signals nor the end of the process waiting.
func TestStopsWhileAReloadHangs(t *testing.T) {
	p := start(t, inMemory(), "--drain", "0s")
	if err := os.Remove(p.file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(p.file, 0o600); err != nil {
		t.Fatal(err)
	}
	p.signals <- syscall.SIGHUP
	var pipe int
	eventually(t, func() (err error) { // there is somebody who reads
		pipe, err = syscall.Open(p.file, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err
	})
	t.Cleanup(func() { // what was left behind ends, too
		if err := os.Remove(p.file); err != nil {
			t.Error(err)
		}
		if err := syscall.Close(pipe); err != nil {
			t.Error(err)
		}
	})
	p.signals <- syscall.SIGTERM
	p.log.await(t, "stopping", 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.stop()
	}()
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		t.Fatal("it does not stop")
	}
	p.log.await(t, "a reload hangs: stopping without it", 1)
}
