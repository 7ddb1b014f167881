package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// ms is a step in a table that counts milliseconds.
const ms = time.Millisecond

// TestBreakerTable walks the drawing above breaker with times given by hand.
// changed is what trip or probed returned: whether the change is logged.
func TestBreakerTable(t *testing.T) {
	const fails, good = "fails", "good"
	type step struct {
		at      time.Duration
		event   string
		changed bool
		open    bool
		hold    time.Duration
	}
	for _, row := range []struct {
		why   string
		steps []step
	}{
		{"a good probe of a closed breaker changes nothing", []step{
			{0, good, false, false, 0},
		}},
		{"one failure opens, one good probe closes", []step{
			{0, fails, true, true, 0},
			{0, good, true, false, 0},
		}},
		{"failures of an open breaker change nothing and hold nothing off", []step{
			{0, fails, true, true, 0},
			{3 * ms, fails, false, true, 0},
			{5 * ms, good, true, false, 0},
		}},
		{"a relapse is held off, each time for twice as long, at most a second", []step{
			{0, fails, true, true, 0},
			{0, good, true, false, 0},
			{10 * ms, fails, true, true, 100 * ms},
			{109 * ms, good, false, true, 100 * ms},
			{110 * ms, good, true, false, 100 * ms},
			{111 * ms, fails, true, true, 200 * ms},
			{310 * ms, good, false, true, 200 * ms},
			{311 * ms, good, true, false, 200 * ms},
			{312 * ms, fails, true, true, 400 * ms},
			{712 * ms, good, true, false, 400 * ms},
			{713 * ms, fails, true, true, 800 * ms},
			{1513 * ms, good, true, false, 800 * ms},
			{1514 * ms, fails, true, true, time.Second},
			{2514 * ms, good, true, false, time.Second},
			{2515 * ms, fails, true, true, time.Second},
			{3514 * ms, good, false, true, time.Second},
			{3515 * ms, good, true, false, time.Second},
		}},
		{"failures while open do not stretch the hold", []step{
			{0, fails, true, true, 0},
			{0, good, true, false, 0},
			{10 * ms, fails, true, true, 100 * ms},
			{60 * ms, fails, false, true, 100 * ms},
			{110 * ms, good, true, false, 100 * ms},
		}},
		{"what stayed well for a second has recovered", []step{
			{0, fails, true, true, 0},
			{0, good, true, false, 0},
			{999 * ms, fails, true, true, 100 * ms},
			{1099 * ms, good, true, false, 100 * ms},
			{2099 * ms, fails, true, true, 0},
			{2099 * ms, good, true, false, 0},
		}},
	} {
		b, start, wakes := &breaker{wake: make(chan struct{}, 1)}, time.Unix(1_795_198_405, 0), 0
		for i, s := range row.steps {
			changed := false
			switch s.event {
			case fails:
				changed = b.trip(start.Add(s.at))
				wakes = 1 // however often: the prober looks once
			case good:
				changed = b.probed(start.Add(s.at))
			}
			if changed != s.changed || b.open() != s.open || b.hold != s.hold {
				t.Errorf("%s: step %d, %s at %v: changed %v, open %v, hold %v; want %v, %v, %v",
					row.why, i, s.event, s.at, changed, b.open(), b.hold, s.changed, s.open, s.hold)
			}
		}
		if len(b.wake) != wakes {
			t.Errorf("%s: the prober is woken %d times, want %d", row.why, len(b.wake), wakes)
		}
	}
}

func awaitState(t *testing.T, s *Store, available bool) {
	t.Helper()
	limitertest.Eventually(t, 5*time.Second, fmt.Sprint("available is ", available), func() bool { return s.Available() == available })
}

func reasonOf(t *testing.T, err error) quota.Reason {
	t.Helper()
	var e *store.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a *store.Error", err)
	}
	return e.Reason
}

// The prober finds an idle store's death by itself, and its return too: no
// request is used as a test either way.
func TestProberOpensAndCloses(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s := newStore(t, Options{Addrs: []string{srv.Addr()}, Budget: DefaultBudget})
	limitertest.KeepRunning(t, s)
	srv.Kill()
	awaitState(t, s, false)
	call := limitertest.OneCall("acme", 5, 1)
	if _, err := limitertest.DecideOne(s, call); reasonOf(t, err) != quota.ReasonBreakerOpen {
		t.Errorf("while away: %v, want breaker_open", err)
	}
	srv.Restart()
	awaitState(t, s, true)
	if n := srv.Calls(t, "evalsha"); n != 0 {
		t.Errorf("%d script calls, want none: probes decide nothing", n)
	}
	if v, err := limitertest.DecideOne(s, call); err != nil || v.Limits[0].Remaining != 4 {
		t.Errorf("after: %v %v, want 4 remaining", err, v)
	}
}

// A store that answers probes and fails calls would otherwise be asked again
// and again, each time at the cost of somebody's answer.
func TestBreakerHoldsOffWhatOnlyProbesWell(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s := newStore(t, Options{Addrs: []string{srv.Addr()}, Budget: time.Second, TimeLua: "if true then return redis.error_reply('MISCONF no') end"})
	limitertest.KeepRunning(t, s)
	call := limitertest.OneCall("acme", 5, 1)
	refused, pace := 0, time.NewTicker(ms)
	defer pace.Stop()
	for end := time.Now().Add(1200 * ms); time.Now().Before(end); <-pace.C {
		_, err := limitertest.DecideOne(s, call)
		switch reasonOf(t, err) {
		case quota.ReasonRedisRefused:
			refused++
			if !strings.Contains(err.Error(), "MISCONF") {
				t.Fatalf("the cause is lost: %v", err)
			}
		case quota.ReasonBreakerOpen:
		default:
			t.Fatal(err)
		}
	}
	// Held off for 0, 100, 200, 400 and 800 ms: at most five fit.
	if refused < 2 || refused > 5 {
		t.Errorf("%d calls failed in 1.2 s, want 2 to 5", refused)
	}
}

// slowNodeSet is a nodeSet of one whose servers take all the time there is to report who
// they are, as a cluster does that asks a node first from which nothing comes back.
type slowNodeSet struct{ single }

func (f slowNodeSet) refresh(ctx context.Context) ([]*node, error) {
	<-ctx.Done()
	return f.current(), nil
}

// Servers are not called dead because another has used up the prober's time: each is
// judged by what it answers itself.
func TestProbeHasItsOwnTime(t *testing.T) {
	srv, s := onRedis(t)
	s.nodeSet = slowNodeSet{s.nodeSet.(single)}
	probes := 0
	for s.probe(context.Background()); !s.Available(); s.probe(context.Background()) {
		if probes++; probes == 20 { // a busy machine may be late for some of them
			t.Fatal("a server that is well was called dead by each of 20 probes")
		}
	}
	srv.Kill()
	if s.probe(context.Background()); s.Available() {
		t.Error("a server that is dead was not called so")
	}
}
