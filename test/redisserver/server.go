package redisserver

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/test/ports"
)

// toBus is how far above a server's port the bus of a cluster listens.
const toBus = 10_000

// Options are what a test may ask of its server. The zero value is a server
// without persistence and with the true time.
type Options struct {
	// Args are further redis-server arguments, as in "--maxmemory", "10mb".
	// They come last and so win over the package's own. The server must stay
	// reachable without a password, or Start gets no answer.
	Args []string
	// Clock gives the server a wall clock that Step can move. Needs gcc.
	Clock bool
	// sentinel is the configuration file of a server that is a Sentinel.
	sentinel string
}

// TB is what this package needs of a testing.TB, so that a program may start servers too.
type TB interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(f func())
	TempDir() string
	Context() context.Context
}

// Server is one redis-server on a loopback port that it keeps across restarts.
// Addr, Client and Time may be called from anywhere; Kill, Restart, Freeze, Thaw
// and Step change the server and are for the test's own goroutine, one at a time.
type Server struct {
	t       TB
	options Options
	binary  string
	dir     string // working directory: log, and dump or append-only file if any
	port    int
	clock   *Clock // nil without Options.Clock
	client  *redis.Client
	process *process // nil while killed
}

// Start runs a redis-server until t ends. It fails t when there is none to run,
// or when it does not come up.
func Start(t TB, options Options) *Server {
	t.Helper()
	s := &Server{t: t, options: options, binary: Binary(t), dir: t.TempDir(), port: ports.Take(t, toBus)}
	if options.Clock {
		s.clock = NewClock(t)
	}
	var err error
	if s.process, err = s.launch(); err != nil {
		t.Fatalf("start redis-server: %v", err)
	}
	s.client = newClient(s.Addr())
	t.Cleanup(func() {
		_ = s.client.Close() // fails only when the test has closed it already
		s.Kill()
	})
	return s
}

// Addr is the server's address, host:port, the same across restarts.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Client returns the administrator's client: it looks into the server beside
// the code under test. It never retries, so that what a test does by it happens
// once, and gives up after two seconds, so that a frozen server fails a test
// instead of hanging it. It outlives restarts and is closed when the test ends.
func (s *Server) Client() *redis.Client { return s.client }

// Kill ends the server at once (SIGKILL) and returns when the process is gone.
// What it held is lost. Killing a killed server does nothing.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	s.process.kill()
	s.process = nil
}

// Restart kills the server if it runs and starts it again on the same port with
// the same options; a stepped clock stays stepped. It fails the test when the
// server does not come up.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	p, err := s.launch()
	if err != nil {
		s.t.Fatalf("restart redis-server: %v", err)
	}
	s.process = p
}

// Freeze stops the server's execution (SIGSTOP): connections stay open, new ones
// are accepted by the kernel, nothing is answered. When it returns the process
// has stopped.
func (s *Server) Freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	if err := AwaitStopped(s.process.cmd.Process.Pid); err != nil {
		s.t.Fatalf("freeze redis-server: %v", err)
	}
}

// Thaw lets a frozen server go on (SIGCONT). What was sent to it meanwhile is
// then carried out.
func (s *Server) Thaw() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.process == nil {
		s.t.Fatalf("send %v to redis-server: it was killed; Restart it first", sig)
	}
	if err := s.process.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("send %v to redis-server: %v", sig, err)
	}
}

// Step moves the server's wall clock by d, forward or back, on top of earlier
// steps; the next TIME shows it.
func (s *Server) Step(d time.Duration) { s.Clock().Step(d) }

// Clock is the server's wall clock. It needs Options.Clock.
func (s *Server) Clock() *Clock {
	s.t.Helper()
	if s.clock == nil {
		s.t.Fatal("the clock of Redis: start the server with Options.Clock")
	}
	return s.clock
}

// Time is the server's TIME in microseconds since the epoch.
func (s *Server) Time() int64 {
	s.t.Helper()
	now, err := s.client.Time(context.Background()).Result()
	if err != nil {
		s.t.Fatalf("read TIME of redis-server: %v", err)
	}
	return now.UnixMicro()
}

// Calls is how often the server has executed a command since it started or was
// last CONFIG RESETSTAT: what really reached it, whatever clients believe.
// Commands are named as in INFO commandstats: "evalsha", "client|setinfo".
func (s *Server) Calls(t TB, command string) int64 {
	t.Helper()
	info, err := s.client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatalf("read command statistics of redis-server: %v", err)
	}
	calls, err := parseCalls(info, command)
	if err != nil {
		t.Fatalf("read command statistics of redis-server: %v", err)
	}
	return calls
}

// parseCalls finds "cmdstat_<command>:calls=N,…"; a command never called has no line.
func parseCalls(info, command string) (int64, error) {
	_, rest, found := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !found {
		return 0, nil
	}
	number, _, _ := strings.Cut(rest, ",")
	calls, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("calls of %s: %w", command, err)
	}
	return calls, nil
}

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:             addr,
		ClientName:       "redisserver-test",
		MaxRetries:       -1,
		DialTimeout:      2 * time.Second,
		DialerRetries:    1,
		ReadTimeout:      2 * time.Second,
		WriteTimeout:     2 * time.Second,
		PoolSize:         4,
		PipelinePoolSize: -1,
	})
}
