package redisserver

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

//go:embed testdata/clock_shim.c
var shimSource []byte

// Clock is what one server's wall clock is off by, in a page of memory that
// the server shares with the test through a file. A program that is started with Env
// in its environment sees the clock; redis-server does, Go programs do not.
type Clock struct {
	library string // the compiled shim, for LD_PRELOAD
	file    string // for CLOCK_OFFSET_FILE
	page    []byte // the file, mapped; its first 8 bytes are the offset in ns
}

// NewClock compiles the shim and maps the offset, until t ends. It needs gcc.
// Compiling takes some 50 ms each time, and a cache would be state that outlives the
// test.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatalf("stepping Redis's clock needs gcc on PATH: run `make test`, which installs it: %v", err)
	}
	dir := t.TempDir()
	w := &Clock{
		library: filepath.Join(dir, "clock_shim.so"),
		file:    filepath.Join(dir, "offset"),
	}
	source := filepath.Join(dir, "clock_shim.c")
	if err := os.WriteFile(source, shimSource, 0o600); err != nil {
		t.Fatalf("write clock shim: %v", err)
	}
	compile := exec.CommandContext(t.Context(), gcc, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", w.library, source)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("compile clock shim: %v\n%s", err, out)
	}
	w.page = mapOffset(t, w.file)
	return w
}

func mapOffset(t testing.TB, path string) []byte {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		t.Fatalf("write clock offset: %v", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("open clock offset: %v", err)
	}
	defer f.Close()
	page, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatalf("map clock offset: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(page); err != nil {
			t.Errorf("unmap clock offset: %v", err)
		}
	})
	return page
}

// Step moves the clock by d, on top of earlier steps. The store is atomic, so that the server never reads
// half of it: a torn offset would be a step of centuries.
func (w *Clock) Step(d time.Duration) {
	atomic.AddInt64((*int64)(unsafe.Pointer(unsafe.SliceData(w.page))), int64(d))
}

// Env is what the server's environment needs to see this clock.
func (w *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + w.library, "CLOCK_OFFSET_FILE=" + w.file}
}
