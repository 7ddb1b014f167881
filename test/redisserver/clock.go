package redisserver

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:embed testdata/clock_shim.c
var shimSource []byte

// Clock is what one server's wall clock is off by and gains, in a page of memory that
// the server shares with the test through a file. A program that is started with Env
// in its environment sees the clock; redis-server does, Go programs do not.
type Clock struct {
	library string // the compiled shim, for LD_PRELOAD
	file    string // for CLOCK_OFFSET_FILE
	page    []byte // the file, mapped: see testdata/clock_shim.c

	mu sync.Mutex // of the page, among writers
}

// clockBytes is the page: which record is in force, and two of them.
const clockBytes = 7 * 8

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

// Step moves the clock by d, on top of earlier steps and of what a rate has gained.
func (w *Clock) Step(d time.Duration) { w.change(func(r *clockRecord) { r.offset += int64(d) }) }

// Slew has the clock gain that many ppm from now on, or lose them if they are
// negative; 0 ends it where it has come to.
func (w *Clock) Slew(perMillion int64) { w.change(func(r *clockRecord) { r.rate = perMillion }) }

// clockRecord is what the clock is off by: offset at the time since, on the monotonic
// clock, and rate millionths of what has passed.
type clockRecord struct{ offset, rate, since int64 }

// change puts another record in force. The server reads only the one that is, so that
// it never reads half of a change: a torn offset would be a step of centuries.
func (w *Clock) change(change func(*clockRecord)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	words := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(w.page))), clockBytes/8)
	records := unsafe.Slice((*clockRecord)(unsafe.Pointer(&words[1])), 2)
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // Linux has it
	}
	other := 1 - words[0]
	r := records[words[0]]
	r.offset, r.since = r.offset+(ts.Nano()-r.since)/1000*r.rate/1000, ts.Nano()
	change(&r)
	records[other] = r
	atomic.StoreInt64(&words[0], other)
}

// Env is what the server's environment needs to see this clock.
func (w *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + w.library, "CLOCK_OFFSET_FILE=" + w.file}
}
