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

// TestClient: the client counts what was served, whole or chunked, and wrong answers.
func TestClient(t *testing.T) {
	var served, wrong atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.HasPrefix(string(body), `{"tenant":"t000`) {
			t.Errorf("request %q: %v", body, err)
		}
		n := served.Add(1)
		if n%10 == 0 {
			wrong.Add(1)
			fmt.Fprint(w, "something else")
			return
		}
		fmt.Fprint(w, strings.Repeat("as expected ", int(n%3)*500+1))
	}))
	defer s.Close()
	c := newClient(s.Listener.Addr().String(), conns, checks("t", "wide", 10), "as expected")
	defer c.close()
	served.Store(0)
	wrong.Store(0)
	got := c.saturate(50 * time.Millisecond)
	if got.answers < conns || int64(got.answers) != served.Load() || int64(got.wrongs) != wrong.Load() {
		t.Errorf("%d answers, %d of them wrong, want %d and %d", got.answers, got.wrongs, served.Load(), wrong.Load())
	}
	served.Store(0)
	got = c.pace(1_000, 100*time.Millisecond)
	if got.answers != 99 || len(got.waits) != 99 || served.Load() != 99 {
		t.Errorf("%d answers to %d requests in 100 ms of 1,000 a second", got.answers, served.Load())
	}
}

// TestTable: goals that are met and missed, and the output of go test -bench.
func TestTable(t *testing.T) {
	f := figures{}
	f.parse("BenchmarkTick/32768-2   	      20	  96937705 ns/op	         8.764 cpu-ms/tick\nPASS\n")
	var out strings.Builder
	err := f.print(&out, []row{
		{"least", "Tick/32768 cpu-ms/tick", "ms", atLeast(9)},
		{"most", "Tick/32768 cpu-ms/tick", "ms", atMost(9)},
		{"near", "Tick/32768 cpu-ms/tick", "", about(8.5)},
		{"none", "Fold ns/op", "", atMost(1)},
	})
	got := strings.Fields(out.String())
	want := strings.Fields("figure measured goal least 8.76 ms ≥ 9 NOT MET most 8.76 ms ≤ 9 met near 8.76 about 8.5 met none – ≤ 1 not measured")
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\n%s", err, out.String())
	}
}
