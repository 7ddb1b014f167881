//go:build unix

package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// pause blocks a thread for that time, or less when a signal interrupts it.
func pause(d time.Duration) {
	tv := unix.NsecToTimeval(d.Nanoseconds() + 999) // rounded up to µs
	_, _ = unix.Select(0, nil, nil, nil, &tv)       // fails with EINTR only
}
