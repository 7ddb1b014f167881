package redisserver

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"
)

// stopWithin bounds the wait for a stop signal to take effect, which is a matter
// of microseconds unless the machine is starved.
const stopWithin = 5 * time.Second

// processAttr has the kernel kill the server when the test binary dies without
// running its cleanups: a panic, a timeout, a killed CI job.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// AwaitStopped returns when the process is stopped. The signal alone is only a
// wish: a server busy on the other core may answer one more command.
func AwaitStopped(pid int) error {
	poll := time.NewTicker(100 * time.Microsecond)
	defer poll.Stop()
	for deadline := time.Now().Add(stopWithin); ; <-poll.C {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		// "pid (name) state …"; the name may itself contain parentheses.
		state := stat[bytes.LastIndexByte(stat, ')')+1:]
		if bytes.HasPrefix(state, []byte(" T")) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d has not stopped within %v", pid, stopWithin)
		}
	}
}
