//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/regiond/regiond/test/chaos/netns"
	"github.com/regiond/regiond/test/redisserver"
)

// process is a program of the world, in its region's namespace. Its methods are for the
// goroutine of the scenario.
type process struct {
	ns     *netns.Namespace
	name   string // "eu-west regiond"
	log    string // file of its output, over all its lives
	args   []string
	env    []string
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	// throttle holds up its lives; nil for none.
	throttle *redisserver.Throttle
}

// launch starts a program and returns without waiting for it to be ready.
func launch(ns *netns.Namespace, dir, name string, env []string, args ...string) (*process, error) {
	p := &process{
		ns: ns, name: ns.Label() + " " + name, args: args, env: env,
		log: filepath.Join(dir, ns.Label()+"-"+name+".log"),
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	return p, nil
}

// start begins a further life with the same arguments.
func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// Not under the test's context: it ends before the world is taken down.
	p.cmd = exec.CommandContext(context.Background(), p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Dir = filepath.Dir(p.log)
	p.cmd.Env = append(os.Environ(), p.env...)
	if err := p.ns.Start(p.cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	exited, cmd := make(chan struct{}), p.cmd
	p.exited = exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // each ends by a signal, and so with an error
	}()
	return p.throttled()
}

// throttled has the throttle go on, if there is one.
func (p *process) throttled() error {
	if p.throttle == nil {
		return nil
	}
	return p.throttle.Start(p.cmd.Process.Pid)
}

// kill ends it as a power cut does, a frozen one too. A second time does nothing.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // its only error is that it has ended
	<-p.exited
}

// freeze returns when the process has stopped: the signal alone is only a wish.
func (p *process) freeze() error {
	if p.throttle != nil {
		p.throttle.Stop() // it would let it go on
	}
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze %s: %w", p.name, err)
	}
	return redisserver.AwaitStopped(p.cmd.Process.Pid)
}

// thaw lets a frozen process go on. One that has been killed meanwhile stays dead.
func (p *process) thaw() error {
	err := p.cmd.Process.Signal(syscall.SIGCONT)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("thaw %s: %w", p.name, err)
	}
	return p.throttled()
}

// tail is the end of its output.
func (p *process) tail(most int) string {
	said, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(said[max(0, len(said)-most):])
}
