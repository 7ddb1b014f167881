package conn

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waited returns for how long the last byte that a client sent has been with the kernel, also before its connection was
// accepted: how long a request that is complete has waited for a processor. It counts in steps of a few milliseconds, and is
// 0 where it cannot be known.
func (c *Conn) waited() time.Duration {
	kernel, ok := c.Conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := kernel.SyscallConn()
	if err != nil {
		return 0
	}
	var age time.Duration
	_ = raw.Control(func(fd uintptr) { // fails where the connection is closed
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			age = time.Duration(info.Last_data_recv) * time.Millisecond
		}
	})
	return age
}
