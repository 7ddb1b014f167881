//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// diskBytes is the disk of a Redis with Options.Disk.
const diskBytes = 8 << 20

// FillDisk fills the disk that a region's Redis logs to. It needs Options.Disk.
func (w *World) FillDisk(name string) Fault {
	r := w.region(name)
	file := filepath.Join(w.disk(r), "filler")
	return Fault{
		Name: "disk of the Redis of " + name + " full",
		Inject: func() error {
			return r.ns.Do(func() error {
				if err := os.WriteFile(file, make([]byte, diskBytes), 0o600); !errors.Is(err, unix.ENOSPC) {
					return fmt.Errorf("fill the disk: %w", err)
				}
				return nil
			})
		},
		Heal: func() error { return r.ns.Do(func() error { return os.Remove(file) }) },
	}
}

// StallDisk has each fsync of a region's Redis take a time. It needs Options.Sync, since
// Redis waits for it before each answer only then.
func (w *World) StallDisk(name string, d time.Duration) Fault {
	r := w.region(name)
	last := func(d time.Duration) func() error {
		return func() error { r.syncs.last(d, 0); return nil }
	}
	return Fault{Name: fmt.Sprintf("each fsync of the Redis of %s takes %v", name, d), Inject: last(d), Heal: last(0)}
}

// BreakDisk has each fsync of a region's Redis fail, by which it ends. Healed, it is
// back with what it had written. It needs Options.Sync.
func (w *World) BreakDisk(name string) Fault {
	r := w.region(name)
	return Fault{
		Name:   "disk of the Redis of " + name + " broken",
		Inject: func() error { r.syncs.last(0, unix.EIO); return nil },
		Heal: func() error {
			_, err := w.Await(5*time.Second, "Redis gives up", func() error {
				select {
				case <-r.redis.exited:
					return nil
				default:
					return errors.New("it goes on")
				}
			})
			r.redis.kill() // does nothing to one that has ended
			r.syncs.last(0, 0)
			return errors.Join(err, r.redis.start())
		},
	}
}

// TearLog kills a region's Redis and cuts the end of its log off, as a power cut does
// with what was not synced. Healed, it is back with the rest. It needs Options.Disk.
func (w *World) TearLog(name string, bytes int64) Fault {
	r := w.region(name)
	return Fault{
		Name: fmt.Sprintf("Redis of %s killed, %d bytes of its log lost", name, bytes),
		Inject: func() error {
			r.redis.kill()
			return r.ns.Do(func() error {
				logs, err := filepath.Glob(filepath.Join(w.disk(r), "appendonlydir", "*.incr.aof"))
				if err != nil || len(logs) != 1 {
					return fmt.Errorf("the log of Redis: %v, %w", logs, err)
				}
				state, err := os.Stat(logs[0])
				if err != nil || state.Size() < 10*bytes {
					return fmt.Errorf("the log of Redis is too short to lose %d bytes: %w", bytes, err)
				}
				return os.Truncate(logs[0], state.Size()-bytes)
			})
		},
		Heal: func() error { return r.redis.start() },
	}
}

// disk is where a region's Redis keeps its log.
func (w *World) disk(r *Region) string { return filepath.Join(w.dir, r.Name+"-disk") }

// mountDisk makes a small disk that only the region's processes see.
func (w *World) mountDisk(r *Region) error {
	if err := os.Mkdir(w.disk(r), 0o700); err != nil {
		return err
	}
	return r.ns.Do(func() error {
		return unix.Mount("tmpfs", w.disk(r), "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes))
	})
}
