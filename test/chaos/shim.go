//go:build linux

package chaos

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:embed testdata/sync_shim.c
var syncShim []byte

// syncs is what becomes of a Redis's fsync, in a page that it shares with the test.
// redis-server sees it when it is started with env.
type syncs struct {
	library, file string
	page          []byte // delay in ns, and an errno
}

// newSyncs compiles the shim. Its page goes with the process.
func newSyncs(dir string) (*syncs, error) {
	s := &syncs{library: filepath.Join(dir, "sync_shim.so"), file: filepath.Join(dir, "syncs")}
	source := filepath.Join(dir, "sync_shim.c")
	err := errors.Join(os.WriteFile(source, syncShim, 0o600), os.WriteFile(s.file, make([]byte, 16), 0o600))
	if err != nil {
		return nil, err
	}
	if _, err := run("gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", s.library, source); err != nil {
		return nil, fmt.Errorf("a disk that can be slow: %w", err)
	}
	f, err := os.OpenFile(s.file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s.page, err = unix.Mmap(int(f.Fd()), 0, 16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return s, err
}

func (s *syncs) env() []string {
	return []string{"LD_PRELOAD=" + s.library, "SYNC_SHIM_FILE=" + s.file}
}

// last has every fsync take a time longer, and fail with an error number if it is not 0.
func (s *syncs) last(delay time.Duration, number unix.Errno) {
	words := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(s.page))), 2)
	atomic.StoreInt64(&words[0], int64(delay))
	atomic.StoreInt64(&words[1], int64(number))
}
