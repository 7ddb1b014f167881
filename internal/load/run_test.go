package load

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// server answers in the time of a test. Requests that come before free wait for it,
// as at a server that stands still until then.
type server struct {
	began time.Time
	takes time.Duration
	stall func(since time.Duration) time.Duration // how long a request from then waits; nil for none

	mu   sync.Mutex // guards all below
	seen []arrival
	most int // under way at once
	now  int
}

type arrival struct {
	at     time.Duration
	target string
}

func newServer(takes time.Duration) *server { return &server{began: time.Now(), takes: takes} }

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	since := time.Since(s.began)
	s.mu.Lock()
	s.seen = append(s.seen, arrival{since, r.URL.Scheme + "://" + r.URL.Host})
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	wait := s.takes
	if s.stall != nil {
		wait += s.stall(since)
	}
	select {
	case <-time.After(wait):
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"allowed":true,"basis":"exact","mode":"global"}`))}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// timed waits by the test's clock.
func timed(ctx context.Context, at time.Time) {
	select {
	case <-time.After(time.Until(at)):
	case <-ctx.Done():
	}
}

func options() Options {
	return Options{
		Targets: []string{"http://one"}, Rate: 100, For: time.Second, Tenants: 10, Zipf: 1, Prefix: "t",
		Costs: Costs{1, 1}, MaxInFlight: 1000, Timeout: 10 * time.Second,
	}
}

func runTimed(ctx context.Context, t *testing.T, o Options, s *server) *Result {
	t.Helper()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	return run(ctx, o, s, timed)
}

// TestOpenLoop: a server that takes three seconds for each answer gets its requests
// when they are due all the same, and no two targets at once.
func TestOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(3 * time.Second)
		o := options()
		o.Targets = []string{"http://one", "http://two", "http://three"}
		r := runTimed(t.Context(), t, o, s)
		if len(s.seen) != 100 || r.Due != 100 || r.Sent != 100 || r.Allowed != 100 {
			t.Fatalf("100 are due in a second of 100/s, %d came: %+v", len(s.seen), r)
		}
		for n, a := range s.seen {
			if want := time.Duration(n) * 10 * time.Millisecond; a.at != want {
				t.Fatalf("request %d comes after %v, is due after %v", n, a.at, want)
			}
			if a.target != o.Targets[n%3] {
				t.Fatalf("request %d goes to %s", n, a.target)
			}
		}
		if took := time.Since(s.began); took != 990*time.Millisecond+3*time.Second {
			t.Errorf("it returns after %v", took)
		}
		if r.SendingMS != 1000 || r.DecidedPerS != 100 || r.AchievedRatio != 1 || !r.KeptUp || r.EndedEarly {
			t.Errorf("%+v", r)
		}
		for i, g := range r.Targets {
			if g.URL != o.Targets[i] || g.Sent != []int64{34, 33, 33}[i] || g.Allowed != g.Sent || g.Failed != 0 || g.Service.P50 < 3000 {
				t.Errorf("target %d: %+v", i, g)
			}
		}
	})
}

// TestStallIsSeen: a server that answers nothing for one second of ten delays a tenth
// of what is due. The latency says so. Each request that was under way waited too,
// so here the service time shows the stall as well: requests were really sent.
func TestStallIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(time.Millisecond)
		s.stall = func(since time.Duration) time.Duration {
			if since < 4*time.Second {
				return 0
			}
			return max(0, 5*time.Second-since)
		}
		o := options()
		o.For = 10 * time.Second
		r := runTimed(t.Context(), t, o, s)
		if p := r.Latency.P99; p < 901 || p > 911 { // of a thousand, ten waited 911 ms or longer
			t.Errorf("p99 of the latency is %v ms, want 901 to 911", p)
		}
		if p := r.Service.P99; p < 901 || p > 911 {
			t.Errorf("p99 of the service time is %v ms, want 901 to 911", p)
		}
		if p := r.Latency.P50; p < 1 || p > 1.01 {
			t.Errorf("p50 is %v ms, want 1", p)
		}
	})
}

// TestMaxInFlight: what is due while too many wait is counted, never sent, and not
// taken for an answer.
func TestMaxInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(500 * time.Millisecond)
		o := options()
		o.MaxInFlight = 7
		r := runTimed(t.Context(), t, o, s)
		// Seven leave in the first 70 ms, and seven in the 70 ms from 500 on.
		if s.most != 7 || r.Sent != 14 || r.Unsent.InFlight != 86 || r.Due != 100 || r.Unsent.Late != 0 {
			t.Errorf("%d at once; %+v", s.most, r)
		}
		if r.Answered != 14 || r.AchievedRatio != 0.14 || len(r.Doubts()) != 1 {
			t.Errorf("%+v, doubts %q", r, r.Doubts())
		}
	})
}

// TestTooSlowToSend: a tool that manages half of the rate stops a second after the
// end, and counts what it never came to.
func TestTooSlowToSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(time.Millisecond)
		o := options()
		o.For = 10 * time.Second
		r := run(t.Context(), o, s, func(ctx context.Context, at time.Time) {
			timed(ctx, time.Now().Add(max(time.Until(at), 20*time.Millisecond)))
		})
		if r.Due != 1000 || r.Sent+r.Unsent.Late != 1000 || r.Sent != 550 || r.KeptUp || r.Late.Max < 5400 || r.Latency.Max < r.Late.Max {
			t.Errorf("%+v", r)
		}
		if last := s.seen[len(s.seen)-1].at; last > 11*time.Second {
			t.Errorf("the last one left after %v", last)
		}
	})
}

// TestWarmup: what is sent before the measuring is in no figure.
func TestWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(0)
		s.stall = func(since time.Duration) time.Duration {
			if since < 2*time.Second {
				return time.Second
			}
			return 0
		}
		o := options()
		o.Warmup = 2 * time.Second
		r := runTimed(t.Context(), t, o, s)
		if len(s.seen) != 300 || r.Due != 100 || r.Sent != 100 || r.Latency.Max != 0 || r.SendingMS != 1000 {
			t.Errorf("%d came; %+v", len(s.seen), r)
		}
	})
}

// TestEndsEarly: nothing is sent after the end of the context, and what was under way
// is waited for and counted.
func TestEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(3 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(255*time.Millisecond, cancel)
		r := runTimed(ctx, t, options(), s)
		if len(s.seen) != 26 || r.Due != 26 || r.Answered != 26 || !r.EndedEarly || r.SendingMS != 260 || r.AchievedRatio != 1 {
			t.Errorf("%d came; %+v", len(s.seen), r)
		}
		if took := time.Since(s.began); took != 3250*time.Millisecond {
			t.Errorf("it returns after %v", took)
		}
	})
}

// TestTimeout: a request without an answer is a fault, and as slow as the timeout.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Timeout = 2 * time.Second
		r := runTimed(t.Context(), t, o, newServer(time.Hour))
		if r.Failed != 100 || r.Answered != 0 || r.Latency.P50 < 2000 || len(r.Errors) != 1 || r.Errors[0] != (Error{Count{faultTimeout, 100}, "context deadline exceeded"}) {
			t.Errorf("%+v", r)
		}
	})
}

// TestWait: it returns at the moment or later, never before, and at once when the
// context ends.
func TestWait(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Second, 1, 100 * time.Microsecond, 3 * time.Millisecond} {
		at := time.Now().Add(ahead)
		if wait(t.Context(), at); time.Now().Before(at) {
			t.Errorf("%v ahead: %v before", ahead, time.Until(at))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	wait(ctx, time.Now().Add(time.Hour))
}
