package redisserver

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
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
	page    []byte // the file, mapped: see testdata/clock_shim.c
}

// clockBytes is the page: the offset in ns.
const clockBytes = 8

// NewClock compiles the shim and maps the offset, until t ends. It needs gcc.
func NewClock(t TB) *Clock {
	t.Helper()
	w := &Clock{
		library: compile(t, "clock_shim.so", shimSource, "-shared", "-fPIC"),
		file:    filepath.Join(t.TempDir(), "offset"),
	}
	w.page = mapOffset(t, w.file)
	return w
}

// compile builds a program or library until t ends. That takes some 50 ms each time, and
// a cache would be state that outlives the test.
func compile(t TB, name string, source []byte, flags ...string) (path string) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatalf("%s needs gcc on PATH: run `make test`, which installs it: %v", name, err)
	}
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path+".c", source, 0o600); err != nil {
		t.Fatalf("write the source of %s: %v", name, err)
	}
	flags = append([]string{"-O2", "-Wall", "-Werror", "-o", path, path + ".c"}, flags...)
	if out, err := exec.CommandContext(t.Context(), gcc, flags...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", name, err, out)
	}
	return path
}

func mapOffset(t TB, path string) []byte {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, clockBytes), 0o600); err != nil {
		t.Fatalf("write clock offset: %v", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("open clock offset: %v", err)
	}
	defer f.Close()
	page, err := syscall.Mmap(int(f.Fd()), 0, clockBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
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

// Step moves the clock by d, on top of earlier steps.
func (w *Clock) Step(d time.Duration) {
	atomic.AddInt64((*int64)(unsafe.Pointer(unsafe.SliceData(w.page))), int64(d))
}

// Env is what the server's environment needs to see this clock.
func (w *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + w.library, "CLOCK_OFFSET_FILE=" + w.file}
}
