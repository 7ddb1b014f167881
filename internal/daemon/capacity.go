package daemon

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/regiond/regiond/internal/page"
)

const (
	// adminConnections bounds the admin listener: collectors, probes and operators, beside the
	// pages that are open.
	adminConnections = 64 + page.MaxReaders
	// keptFiles are the descriptors that the data listener leaves for admin, Redis, the bus,
	// gossip and files.
	keptFiles = adminConnections + 192
	// connectionMemory is what a connection may take with a half-sent request: buffers of 64
	// KiB that grew to there, a header (over HTTP/2 1,900 fields of a byte), a stack, and what the collector has not yet freed.
	connectionMemory = 320 << 10
)

// connectionBound is how many connections the data listener has at most. wanted is
// --max-connections, 0 for what the files and half of the memory of this process allow.
func connectionBound(wanted, files, memory int64) (int, error) {
	spare := files - min(keptFiles, files/2)
	if wanted > spare {
		return 0, fmt.Errorf("--max-connections %d leaves less than %d of %d file descriptors for the rest; raise the limit (ulimit -n) or lower it to %d",
			wanted, files-spare, files, spare)
	}
	if wanted == 0 {
		wanted = max(1, min(spare, memory/2/connectionMemory))
	}
	return int(wanted), nil
}

// fileLimit is how many descriptors this process may have.
func fileLimit() int64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the usual one
	}
	return int64(min(limit.Cur, math.MaxInt32))
}

// memoryLimit is how many bytes this process may have: the least of GOMEMLIMIT, its
// control group's and the machine's.
func memoryLimit() int64 {
	least := debug.SetMemoryLimit(-1)
	if machine, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kB int64
		if _, err := fmt.Sscanf(string(machine), "MemTotal: %d kB", &kB); err == nil {
			least = min(least, kB<<10)
		}
	}
	group, _ := os.ReadFile("/proc/self/cgroup")
	_, path, _ := bytes.Cut(bytes.TrimSpace(group), []byte("0::"))
	for _, file := range []string{filepath.Join("/sys/fs/cgroup", string(path), "memory.max"), "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if n, wrong := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && wrong == nil {
			least = min(least, n)
		}
	}
	return least
}
