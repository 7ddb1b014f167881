//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestClient: the client counts checks by what their answers rest on, whole or chunked,
// and decisions that are not as expected.
func TestClient(t *testing.T) {
	const each = 10
	var served, decided, shed atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.HasPrefix(string(body), `{"checks":[{"tenant":"t000`) {
			t.Errorf("request %q: %v", body, err)
		}
		n := served.Add(1)
		if n%10 == 0 { // no answer to any check
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		for i := range each - 1 {
			basis := []string{"exact", "estimate", "cached", "shed", "local", "open", "closed"}[i%7]
			fmt.Fprintf(w, `{"allowed":%v,"basis":%q}%s`, basis != "shed", basis, strings.Repeat(" ", int(n%3)*500))
		}
		decided.Add(5)
		shed.Add(1)
	}))
	defer s.Close()
	c := newClient(s.Listener.Addr().String(), 32, batches("t", wide, 10*each, each), wantAllowed)
	defer c.close()
	for _, load := range []func() sample{
		func() sample { return c.saturate(50 * time.Millisecond) },
		func() sample { return c.pace(1_000, 100*time.Millisecond) },
	} {
		served.Store(0)
		decided.Store(0)
		shed.Store(0)
		got, n := load(), served.Load()
		want := tally{int(decided.Load()), int(shed.Load()), int(n*each - decided.Load() - shed.Load())}
		if got.tally != want || int64(got.answers) != n || int64(len(got.waits)) != n || got.wrongs > 0 || got.strange == "" {
			t.Errorf("%d answers, %+v, %d wrong; want %d, %+v", got.answers, got.tally, got.wrongs, n, want)
		}
		if n < 32 || got.took > 5*time.Second {
			t.Errorf("%d answers in %v", n, got.took)
		}
	}
	c.want = []byte(wantDenied)
	if got := c.saturate(10 * time.Millisecond); got.wrongs == 0 {
		t.Error("decisions that are not as expected are not wrong")
	}
}
