package redisserver

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

//go:embed testdata/throttle.c
var throttleSource []byte

// Throttle is a program that has a process run for a part of each period, and not at all
// for the rest. It needs Linux, root and gcc.
type Throttle struct {
	program, run, period string
	cmd                  *exec.Cmd // nil while it is stopped
	pid                  int
}

// NewThrottle builds the program.
func NewThrottle(t TB, run, period time.Duration) *Throttle {
	t.Helper()
	us := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	return &Throttle{program: compile(t, "throttle", throttleSource), run: us(run), period: us(period)}
}

// Start throttles a process until that has ended, or Stop.
func (th *Throttle) Start(pid int) error {
	th.Stop()
	cmd := exec.CommandContext(context.Background(), th.program, strconv.Itoa(pid), th.run, th.period)
	cmd.SysProcAttr = processAttr()
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = cmd.Stdout
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("throttle process %d: %w", pid, err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "throttled\n" {
		return fmt.Errorf("throttle process %d: %q, %w", pid, line, cmd.Wait())
	}
	th.cmd, th.pid = cmd, pid
	return nil
}

// Stop lets the process run. It does nothing when none is throttled.
func (th *Throttle) Stop() {
	if th.cmd == nil {
		return
	}
	_ = th.cmd.Process.Kill() // its only error is that it has ended
	_ = th.cmd.Wait()         // it was killed
	_ = syscall.Kill(th.pid, syscall.SIGCONT)
	th.cmd = nil
}

// Pid is the server's process, which must not have been killed.
func (s *Server) Pid() int { return s.process.cmd.Process.Pid }
