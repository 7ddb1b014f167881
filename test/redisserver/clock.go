package redisserver

import (
	_ "embed"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
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
	library string     // the compiled shim, for LD_PRELOAD
	file    string     // for CLOCK_OFFSET_FILE
	page    *clockPage // the file, mapped

	mu       sync.Mutex
	settings []setting // all since the beginning
}

// setting is what the clock is off by from a true time on.
type setting struct {
	offset, ppm, since int64 // ns, ns in a ms, ns since 1970
}

// clockPage is as in testdata/clock_shim.c.
type clockPage struct {
	index    int64 // of the setting in use
	settings [2]setting
}

// at is what the clock is off by at a true time. It goes on by the millisecond.
func (s *setting) at(ns int64) int64 { return s.offset + (ns-s.since)/1e6*s.ppm }

// NewClock compiles the shim and maps the page, until t ends. It needs gcc.
func NewClock(t TB) *Clock {
	t.Helper()
	w := &Clock{
		library:  compile(t, "clock_shim.so", shimSource, "-shared", "-fPIC"),
		file:     filepath.Join(t.TempDir(), "offset"),
		settings: make([]setting, 1),
	}
	w.page = mapPage(t, w.file)
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

func mapPage(t TB, path string) *clockPage {
	t.Helper()
	const size = int(unsafe.Sizeof(clockPage{}))
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatalf("write clock offset: %v", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("open clock offset: %v", err)
	}
	defer f.Close()
	page, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatalf("map clock offset: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(page); err != nil {
			t.Errorf("unmap clock offset: %v", err)
		}
	})
	return (*clockPage)(unsafe.Pointer(unsafe.SliceData(page)))
}

// Step moves the clock by d, on top of what it is off by.
func (w *Clock) Step(d time.Duration) { w.set(func(s *setting) { s.offset += int64(d) }) }

// Drift has the clock run too fast from now on by so many millionths, or too slow.
func (w *Clock) Drift(ppm int64) { w.set(func(s *setting) { s.ppm = ppm }) }

func (w *Clock) set(change func(s *setting)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().UnixNano()
	old := &w.settings[len(w.settings)-1]
	s := setting{offset: old.at(now), ppm: old.ppm, since: now}
	change(&s)
	w.settings = append(w.settings, s)
	next := 1 - w.page.index
	w.page.settings[next] = s
	atomic.StoreInt64(&w.page.index, next)
}

// True is the true time at which the clock showed us, µs since 1970: the one that is the nearest to a
// span of true time, since a clock that steps back shows a time twice.
func (w *Clock) True(us, from, to int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	best, least := int64(0), int64(math.MaxInt64)
	for i := range w.settings {
		s := &w.settings[i]
		passed := us*1000 - s.offset - s.since // by the clock
		at := (s.since + passed - passed/(1e6+s.ppm)*s.ppm) / 1000
		begins, ends := max(from, s.since/1000), to
		if i+1 < len(w.settings) {
			ends = min(to, w.settings[i+1].since/1000)
		}
		if off := max(begins-at, at-ends, 0); off < least {
			best, least = at, off
		}
	}
	return best
}

// Env is what the server's environment needs to see this clock.
func (w *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + w.library, "CLOCK_OFFSET_FILE=" + w.file}
}
