//go:build unix

package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// openLoop calls do so many times a second for that long, each time in a goroutine
// of its own: who is slow delays nobody, and is not spared the calls that follow.
// It returns when all have returned.
func openLoop(perSecond int, long time.Duration, do func()) {
	var calls sync.WaitGroup
	defer calls.Wait()
	began := time.Now()
	for n := range int(long.Seconds() * float64(perSecond)) {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		}
		calls.Go(do)
	}
}

// latencies is what a load came to.
type benchLatencies struct {
	mu    sync.Mutex // guards all below
	took  []time.Duration
	wrong []string // answers that were not decided as they should have been
}

func (l *benchLatencies) add(took time.Duration, wrong string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
	if wrong != "" {
		l.wrong = append(l.wrong, wrong)
	}
}

// join adds what another load came to, which is over.
func (l *benchLatencies) join(other *benchLatencies) {
	l.took, l.wrong = append(l.took, other.took...), append(l.wrong, other.wrong...)
}

// quantile is the smallest latency that at least that part of all do not exceed.
func (l *benchLatencies) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return quantile(l.took, q)
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	rank := 0
	for rank < len(sorted)-1 && float64(rank+1) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[rank]
}

// asker asks one regiond for tenants of a crowd.
type benchAsker struct {
	url     string
	client  *http.Client
	tenants int // from 0 on
	seen    *benchLatencies
}

// mostConns is above what ever waits at once, unless regiond stands still.
const benchConns = 1024

func newBenchAsker(addr string, tenants int) *benchAsker {
	return &benchAsker{
		url: "http://" + addr, tenants: tenants, seen: &benchLatencies{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchConns}, Timeout: 10 * time.Second},
	}
}

// check asks once. Time runs from the moment at which it was let go, and not from
// when a connection was free.
func (a *benchAsker) check() {
	body := fmt.Sprintf(`{"tenant":%q}`, benchTenant(rand.IntN(a.tenants)))
	began := time.Now()
	status, answer, err := a.post("/v1/check", body)
	took := time.Since(began)
	wrong := ""
	if err != nil {
		wrong = err.Error()
	} else if status != http.StatusOK || !bytes.Contains(answer, []byte(`"mode":"global"`)) {
		wrong = fmt.Sprintf("%d %s", status, answer)
	}
	a.seen.add(took, wrong)
}

func (a *benchAsker) post(path, body string) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, a.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil, err
	}
	return a.do(r)
}

func (a *benchAsker) get(path string) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, a.url+path, nil)
	if err != nil {
		return 0, nil, err
	}
	return a.do(r)
}

func (a *benchAsker) do(r *http.Request) (status int, answer []byte, err error) {
	res, err := a.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// TestBenchOpenLoop: a server that takes ten seconds for each answer gets its
// requests when they are due all the same.
func TestBenchOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		openLoop(50, 2*time.Second, func() {
			mu.Lock()
			at = append(at, time.Since(began))
			mu.Unlock()
			time.Sleep(10 * time.Second)
		})
		if len(at) != 100 {
			t.Fatalf("%d calls in two seconds of 50 a second", len(at))
		}
		for n, got := range at {
			if want := time.Duration(n) * 20 * time.Millisecond; got != want {
				t.Fatalf("call %d begins after %v, is due after %v", n, got, want)
			}
		}
		if took := time.Since(began); took != 1980*time.Millisecond+10*time.Second {
			t.Errorf("it returns after %v, while calls are under way", took)
		}
	})
}

func TestBenchQuantile(t *testing.T) {
	for _, row := range []struct {
		all  []time.Duration
		q    float64
		want time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0.99, 7},
		{[]time.Duration{3, 1, 2}, 0.5, 2},
		{[]time.Duration{4, 3, 1, 2}, 0.5, 2},
		{[]time.Duration{4, 3, 1, 2}, 0.51, 3},
		{[]time.Duration{4, 3, 1, 2}, 0, 1},
		{[]time.Duration{4, 3, 1, 2}, 1, 4},
	} {
		if got := quantile(row.all, row.q); got != row.want {
			t.Errorf("quantile %v of %v is %d, want %d", row.q, row.all, got, row.want)
		}
	}
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	if got := quantile(hundred, 0.99); got != 99 {
		t.Errorf("99 of 100 are at most 99, got %d", got)
	}
}
