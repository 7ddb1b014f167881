//go:build unix

package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// loadConnections is how many connections a load has.
const loadConnections = 96

// loads are requests that cost much, of one customer: through the gateway, or to regiond itself.
func loads() []struct {
	name, request string
	direct        bool
} {
	get := func(path, fields string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + fields + "\r\n"
	}
	post := func(path, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	}
	const key = "X-API-Key: demo-key-globex\r\n"
	return []struct {
		name, request string
		direct        bool
	}{
		{"paths that are refused", get("/.%20"+strings.Repeat("%25///.%20", 189), key), false},
		{"paths that are read in many ways", get("/a;b=c/..%2e%2e;x/.//"+strings.Repeat("/.;x.%20//%20", 20), key), false},
		{"64 KB of fields", get("/v1/authz", strings.Repeat("X-Field: "+strings.Repeat("a", 100)+"\r\n", 590)), true},
		{"batches with 32 errors", post("/v1/check:batch", `{"checks":[`+strings.Repeat(`{"tenant":"a b","x":1},`, 32)+
			strings.Repeat(`{"tenant":"globex"},`, 67)+`{"tenant":"globex"}]}`), true},
		{"deep JSON", post("/v1/check", `{"tenant":"globex","x":`+strings.Repeat("[", 9_900)+strings.Repeat("]", 9_900)+"}"), true},
		{"explain", get("/v1/explain/globex", ""), true},
	}
}

// TestUnderLoad has one customer send requests that cost much while another one, whose quota is used up, sends FLOODED
// requests (100 by default) beside each of these loads. The gateway fails open with the timeouts of its file; none reaches
// the app. Loads on regiond itself are the same behind each gateway: one has them.
func (e Example) TestUnderLoad(t *testing.T, direct bool) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts redis-server, regiond and a gateway")
	}
	n, err := strconv.Atoi(os.Getenv("FLOODED"))
	if err != nil {
		n = 100
	}
	s := &stack{app: NewApp(t)}
	s.regiond = startRegiond(t, Build(t, "../.."), "topology.yaml", nil, Edit{
		Old: "{name: sustained, units: 10, per: 1m}", New: "{name: sustained, units: 10, per: 1h}",
	})
	s.Customer, _ = e.InFrontOf(t, s.regiond.Addr, s.app.Addr)
	for range 40 { // some may pass uncounted while the programs start
		s.Send(t, Request{As: "hobby"})
	}
	s.Send(t, Request{As: "hobby"}).Is(t, http.StatusTooManyRequests)
	for _, load := range loads() {
		addr := s.Addr
		if load.direct && !direct {
			continue
		}
		if load.direct {
			addr = s.regiond.Addr
		}
		before := s.reached("hobby")
		stop := startLoad(t.Context(), addr, load.request)
		var left atomic.Int64
		left.Store(int64(n))
		var slowest atomic.Int64
		var senders sync.WaitGroup
		for range 4 {
			senders.Go(func() {
				for left.Add(-1) >= 0 {
					start := time.Now()
					s.Send(t, Request{As: "hobby"})
					slowest.Store(max(slowest.Load(), int64(time.Since(start)))) // about
				}
			})
		}
		senders.Wait()
		statuses := stop()
		t.Logf("%s: answered with %v meanwhile; the slowest of %d took %v", load.name, statuses, n, time.Duration(slowest.Load()))
		if len(statuses) == 0 || statuses[http.StatusMisdirectedRequest]+statuses[http.StatusNotFound] > 0 {
			t.Errorf("%s: this was no load", load.name)
		}
		if passed := s.reached("hobby") - before; passed > 0 {
			t.Errorf("%s: %d of %d requests of an exhausted tenant reached the app", load.name, passed, n)
		}
	}
}

// reached is how many requests of a tenant reached the app.
func (s *stack) reached(tenant string) (n int) {
	for _, r := range s.app.Requests() {
		if r.Header.Get("X-Tenant") == tenant {
			n++
		}
	}
	return n
}

// startLoad sends a request again and again on many connections, until stop is called, which returns how often it was answered
// with each status.
func startLoad(ctx context.Context, addr, request string) (stop func() map[int]int) {
	var running sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	ctx, end := context.WithCancel(ctx)
	for range loadConnections {
		running.Go(func() {
			for ctx.Err() == nil {
				conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
				if err != nil {
					continue
				}
				_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
				in := bufio.NewReader(conn)
				for closed := false; !closed && ctx.Err() == nil; {
					if _, err := io.WriteString(conn, request); err != nil {
						break
					}
					res, err := http.ReadResponse(in, nil)
					if err != nil {
						break
					}
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					mu.Lock()
					statuses[res.StatusCode]++
					mu.Unlock()
					closed = res.Close || err != nil
				}
				conn.Close()
			}
		})
	}
	return func() map[int]int {
		end()
		running.Wait()
		return statuses
	}
}
