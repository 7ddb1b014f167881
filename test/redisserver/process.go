package redisserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// answerWithin bounds the wait for a started server's first answer. It takes
	// some 20 ms on an idle machine; the rest is for a busy one.
	answerWithin = 20 * time.Second
)

// process is one life of the server: from start to exit.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed by the goroutine that waits for cmd
}

// launch starts redis-server on s.port and waits until that very process answers.
func (s *Server) launch() (*process, error) {
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	args := append(s.arguments(), s.options.Args...)
	// Not the test's context: that ends before cleanups, which may still need the server.
	cmd := exec.CommandContext(context.Background(), s.binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = processAttr()
	cmd.Env = os.Environ()
	if s.clock != nil {
		cmd.Env = append(cmd.Env, s.clock.Env()...)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.binary, err)
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // every end of a test's server is a signal, and so an "error"
	}()
	if err := p.awaitAnswer(s.Addr()); err != nil {
		p.kill()
		return nil, fmt.Errorf("%w; its log ends:\n%s", err, s.logTail())
	}
	return p, nil
}

func (s *Server) arguments() []string {
	args := []string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir}
	if s.options.sentinel != "" {
		return append([]string{s.options.sentinel, "--sentinel"}, args...)
	}
	return append(args, "--save", "", "--appendonly", "no")
}

// awaitAnswer returns nil when the server accepts commands, or why it never will.
func (p *process) awaitAnswer(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	client := newClient(addr)
	defer client.Close()
	retry := time.NewTicker(2 * time.Millisecond)
	defer retry.Stop()
	for {
		// The client logs every refusal, so it is only used once the port accepts connections.
		if dial(ctx, addr) == nil && p.answers(ctx, client) {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("redis-server on %s exited: %v", addr, p.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("redis-server on %s did not answer within %v", addr, answerWithin)
		case <-retry.C:
		}
	}
}

// answers reports whether the process itself, and not another server that holds
// the port, is ready. PING fails while a data set loads; INFO names the process.
func (p *process) answers(ctx context.Context, client *redis.Client) bool {
	if client.Ping(ctx).Err() != nil {
		return false
	}
	info, err := client.Info(ctx, "server").Result()
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", p.cmd.Process.Pid))
}

// kill ends the process, a frozen one too, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // its only error is that the process has exited
	<-p.exited
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "redis.log") }

func (s *Server) logTail() string {
	log, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-2000):])
}

// Binary is the redis-server to run: $REDIS_SERVER, or the one on PATH. It fails t when
// there is none.
func Binary(t TB) string {
	t.Helper()
	name := os.Getenv("REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("this test needs a real redis-server, on PATH or named by REDIS_SERVER: "+
			"run `make test`, which installs it: %v", err)
	}
	return path
}

// dial connects and closes: nil if the port accepts connections.
func dial(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
