//go:build linux

package daemon

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestBenchRawClient: what the client has counted is what was served, in one piece or
// in chunks, and an answer that is not as it should be is seen.
func TestBenchRawClient(t *testing.T) {
	var served, strange atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.HasPrefix(string(body), `{"tenant":"t000`) {
			t.Errorf("it asks %q: %v", body, err)
		}
		n := served.Add(1)
		if n%10 == 0 {
			strange.Add(1)
			fmt.Fprint(w, "something else")
			return
		}
		fmt.Fprint(w, strings.Repeat("as it should be ", int(n%3)*500+1))
	}))
	defer s.Close()
	c := newRawClient(t, s.Listener.Addr().String(), rawConns, rawChecks("t", "wide", 10), "as it should be")
	defer c.close()
	served.Store(0)
	strange.Store(0)
	came := c.saturate(t, 50*time.Millisecond)
	if came.answers < rawConns || int64(came.answers) != served.Load() || int64(came.wrongs) != strange.Load() {
		t.Errorf("%d answers, %d of them wrong, want %d and %d", came.answers, came.wrongs, served.Load(), strange.Load())
	}
	served.Store(0)
	came = c.keep(t, 1_000, 100*time.Millisecond)
	if came.answers != 99 || len(came.waits) != 99 || served.Load() != 99 {
		t.Errorf("%d answers to %d requests in a tenth of a second of 1,000", came.answers, served.Load())
	}
}

// TestBenchProcessTime: another way to ask for our own processor time says the same.
func TestBenchProcessTime(t *testing.T) {
	first := cpuTime(t)
	got := processTime(t, os.Getpid())
	if last := cpuTime(t); got < first-10*time.Millisecond || got > last+10*time.Millisecond {
		t.Errorf("it has used %v, between %v and %v by getrusage", got, first, last)
	}
}
