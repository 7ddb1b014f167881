package redisserver_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/test/leaks"
	"github.com/regiond/regiond/test/redisserver"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// get returns "" for a key that is not there.
func get(t *testing.T, srv *redisserver.Server, key string) string {
	t.Helper()
	value, err := srv.Client().Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("GET %s: %v", key, err)
	}
	return value
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

// TestTrueTime: whatever a clock is off by, what it shows is led back to the true time.
func TestTrueTime(t *testing.T) {
	t.Parallel()
	srv := redisserver.Start(t, redisserver.Options{Clock: true})
	clock := srv.Clock()
	for _, change := range []func(){
		func() {},
		func() { clock.Drift(-10_000) },
		func() { clock.Step(time.Second) },
		func() { clock.Step(-time.Hour) },
		func() { clock.Drift(20_000) },
		func() { clock.Step(time.Minute); clock.Drift(0) },
	} {
		change()
		for range 50 {
			before := time.Now().UnixMicro()
			us := srv.Time()
			after := time.Now().UnixMicro()
			if at := clock.True(us, before, after); at < before-grainUS || at > after+grainUS {
				t.Fatalf("TIME %d is said to be shown at %d, and was between %d and %d", us, at, before, after)
			}
		}
	}
	before, us := time.Now(), srv.Time()
	clock.Drift(10_000)
	for us+time.Since(before).Microseconds()+500 > srv.Time() {
		if time.Since(before) > 10*time.Second {
			t.Fatal("a clock that is 1 % fast is not ahead")
		}
	}
}

// grainUS is by how much a clock that drifts moves at a time: 2 % of a millisecond, and rounding.
const grainUS = 25

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
