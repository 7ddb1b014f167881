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
		func() sample { return c.pace(1_000, 1, 100*time.Millisecond) },
		func() sample { return c.pace(1_000, 10, 100*time.Millisecond) },
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

// TestLoads: a load with answers that are neither decisions nor shed is marked, and an
// error; one that breaks another promise is marked.
func TestLoads(t *testing.T) {
	line := func(tl tally, missed ...string) *load {
		return &load{name: "load", client: &client{total: tl}, missed: missed}
	}
	for _, row := range []struct {
		load *load
		want string
	}{
		{line(tally{decided: 1000}), ""},
		{line(tally{decided: 501, shed: 498, other: 1}), ""},
		{line(tally{decided: 500, shed: 498, other: 2}), "FAILED"},
		{line(tally{decided: 500, shed: 500}, "late"), "NOT MET late"},
	} {
		var out strings.Builder
		err := printLoads(&out, []*load{row.load})
		_, text, _ := strings.Cut(out.String(), "\n")
		if (err != nil) != (row.want == "FAILED") || !strings.Contains(text, row.want) || row.want == "" && strings.ContainsAny(text, "FN") {
			t.Errorf("%+v: %v\n%s", row.load.client.total, err, out.String())
		}
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
