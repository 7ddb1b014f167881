package redisserver_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/regiond/regiond/test/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func set(t *testing.T, srv *redisserver.Server, key, value string) {
	t.Helper()
	if err := srv.Client().Set(t.Context(), key, value, 0).Err(); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

// get returns "" for a key that is not there.
func get(t *testing.T, srv *redisserver.Server, key string) string {
	t.Helper()
	value, err := srv.Client().Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("GET %s: %v", key, err)
	}
	return value
}

func TestServersAreApart(t *testing.T) {
	t.Parallel()
	a := redisserver.Start(t, redisserver.Options{})
	b := redisserver.Start(t, redisserver.Options{})
	if a.Addr() == b.Addr() {
		t.Fatalf("two servers on %s", a.Addr())
	}
	set(t, a, "k", "a")
	if got := get(t, b, "k"); got != "" {
		t.Errorf("b holds %q, which was written to a", got)
	}
}

// Not parallel: another test's server could be given the port that it probes.
func TestServerEndsWithItsTest(t *testing.T) {
	var addr string
	t.Run("inner", func(t *testing.T) {
		srv := redisserver.Start(t, redisserver.Options{})
		srv.Freeze() // a frozen server ends too
		addr = srv.Addr()
	})
	if conn, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after the test's end: %v, %v; want connection refused", conn, err)
	}
}

func TestArgsReachTheServer(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{Args: []string{"--maxmemory", "7mb"}})
	got, err := srv.Client().ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || got["maxmemory"] != "7340032" {
		t.Errorf("maxmemory is %v (%v), want 7340032", got, err)
	}
	srv.Config(t, "maxmemory", "8mb")
	got, err = srv.Client().ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || got["maxmemory"] != "8388608" {
		t.Errorf("after Config, maxmemory is %v (%v), want 8388608", got, err)
	}
}

func TestKillForgetsAndRestartKeepsTheAddress(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{})
	addr := srv.Addr()
	set(t, srv, "k", "v")

	srv.Kill()
	srv.Kill() // nothing left to kill
	if err := srv.Client().Ping(t.Context()).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("PING after Kill: %v, want connection refused", err)
	}

	srv.Restart()
	if srv.Addr() != addr {
		t.Errorf("restarted on %s, was on %s", srv.Addr(), addr)
	}
	if got := get(t, srv, "k"); got != "" {
		t.Errorf("k is %q after a restart without persistence", got)
	}
}

func TestRestartLoadsWhatArgsPersisted(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{
		Args: []string{"--appendonly", "yes", "--appendfsync", "always"},
	})
	set(t, srv, "k", "v")
	srv.Restart()
	if got := get(t, srv, "k"); got != "v" {
		t.Errorf("k is %q after a restart with an append-only file, want v", got)
	}
}

func TestFreezeIsSilenceAndThawGoesOn(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{})
	client := redis.NewClient(&redis.Options{
		Addr: srv.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, PipelinePoolSize: -1,
	})
	defer client.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}

	srv.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := client.Incr(ctx, "sent").Err()
	if !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(err) {
		t.Fatalf("INCR on a frozen server: %v, want a timeout", err)
	}

	srv.Thaw()
	if got := get(t, srv, "sent"); got != "1" {
		t.Errorf("sent is %q after the thaw: what waited in the socket is carried out, want 1", got)
	}
}

func TestStepMovesTimeAndNothingElse(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{Clock: true})
	for _, step := range []struct {
		by, total time.Duration
	}{
		{by: 0, total: 0},
		{by: time.Hour, total: time.Hour},
		{by: -2 * time.Hour, total: -time.Hour},
		{by: time.Hour + 250*time.Millisecond, total: 250 * time.Millisecond},
		{by: -500 * time.Millisecond, total: -250 * time.Millisecond},
		{by: 249 * time.Millisecond, total: -time.Millisecond},
	} {
		srv.Step(step.by)
		before := time.Now().Add(step.total).UnixMicro()
		got := srv.Time()
		after := time.Now().Add(step.total).UnixMicro()
		if got < before || got > after {
			t.Errorf("stepped by %v: TIME is %d, want between %d and %d", step.by, got, before, after)
		}
	}
}

func TestStepMovesExpiry(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{Clock: true})
	if err := srv.Client().Set(t.Context(), "short", "v", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	srv.Step(-time.Hour)
	left, err := srv.Client().PTTL(t.Context(), "short").Result()
	if err != nil || left < time.Hour || left > time.Hour+time.Minute {
		t.Errorf("a TTL of 1m is %v (%v) after a step of -1h, want between 1h and 1h1m", left, err)
	}
	srv.Step(2 * time.Hour)
	if got := get(t, srv, "short"); got != "" {
		t.Errorf("a key of one minute is %q an hour later", got)
	}
}

func TestStepOutlivesARestart(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{Clock: true})
	srv.Step(time.Hour)
	srv.Restart()
	before := time.Now().Add(time.Hour).UnixMicro()
	if got := srv.Time(); got < before {
		t.Errorf("TIME after a restart is %d, want at least %d", got, before)
	}
}

func TestCallsCountsWhatArrived(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{})
	for range 3 {
		if err := srv.Client().Eval(t.Context(), "return 1", nil).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]int64{"eval": 3, "evalsha": 0} {
		if got := srv.Calls(t, command); got != want {
			t.Errorf("Calls(%s) = %d, want %d", command, got, want)
		}
	}
}

// fatalist records how a test would have ended.
type fatalist struct {
	testing.TB
	fatal, skipped bool
}

func (f *fatalist) Helper()               {}
func (f *fatalist) Fatalf(string, ...any) { f.fatal = true; runtime.Goexit() }
func (f *fatalist) Skip(...any)           { f.skipped = true; runtime.Goexit() }
func (f *fatalist) Skipf(string, ...any)  { f.skipped = true; runtime.Goexit() }

func TestWithoutRedisATestFails(t *testing.T) {
	t.Setenv("REDIS_SERVER", filepath.Join(t.TempDir(), "redis-server"))
	f := &fatalist{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		redisserver.Start(f, redisserver.Options{})
	}()
	<-done
	if !f.fatal || f.skipped {
		t.Errorf("fatal %v, skipped %v; want the test to fail, never to be skipped", f.fatal, f.skipped)
	}
}
