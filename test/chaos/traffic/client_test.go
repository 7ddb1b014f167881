//go:build linux

package traffic_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/regiond/regiond/test/chaos/traffic"
)

const good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

// server answers requests with what a function returns, "" closing the connection,
// and counts requests and connections.
func server(t *testing.T, say func(n int64) string) (c *traffic.Client, requests, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	requests, connections = new(atomic.Int64), new(atomic.Int64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go serve(conn, func() string { return say(requests.Add(1)) })
		}
	}()
	return traffic.NewClient(l.Addr().String(), (&net.Dialer{}).DialContext), requests, connections
}

func serve(conn net.Conn, say func() string) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		request, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_ = request.Body.Close()
		answer := say()
		if _, err := conn.Write([]byte(answer)); err != nil || answer == "" {
			return
		}
	}
}

func ask(t *testing.T, c *traffic.Client) error {
	t.Helper()
	_, _, err := c.Do("POST", "/v1/check", "")
	return err
}

// An unsolicited answer is detected, whether it arrives at once or later.
func TestClientSeesWhatNobodyAskedFor(t *testing.T) {
	c, _, _ := server(t, func(int64) string { return good + good })
	if err := ask(t, c); err != nil {
		t.Fatal(err)
	}
	for len(c.Extra()) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the second answer was not seen")
		}
		c.HangUp()
		if len(c.Extra()) == 0 {
			_ = ask(t, c)
		}
	}
	if said := strings.Join(c.Extra(), "; "); !strings.Contains(said, "behind an answer") && !strings.Contains(said, "idle connection") {
		t.Errorf("got %q", said)
	}
}

// Each check of a batch gets its own result, or all get none.
func TestBatch(t *testing.T) {
	bodies := []string{
		`{"results":[{"status":200,"allowed":true,"basis":"exact"},{"status":503,"basis":"shed"}]}`,
		`{"results":[{"status":200}]}`,
	}
	c, _, _ := server(t, func(n int64) string {
		body := bodies[n-1]
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
	checks := make([]traffic.Record, 2)
	c.Check(checks, false)
	if a, b := &checks[0], &checks[1]; a.Status != 200 || !a.Admitted() || b.Status != 503 || b.Answer.Basis != "shed" || a.Err+b.Err != "" {
		t.Errorf("got %+v", checks)
	}
	checks = make([]traffic.Record, 2)
	c.Check(checks, false)
	if checks[0].Err == "" || checks[1].Err == "" {
		t.Errorf("one result for two checks gave %+v", checks)
	}
}

// A request that was sent is never sent again: it may have been charged.
func TestClientNeverRepeats(t *testing.T) {
	c, requests, _ := server(t, func(int64) string { return "" })
	if err := ask(t, c); err == nil {
		t.Error("an answer although none was sent")
	}
	if requests.Load() != 1 {
		t.Errorf("%d requests arrived, one was made", requests.Load())
	}
}

// The open loop sends what is due although nothing is answered.
func TestLoadIsOpen(t *testing.T) {
	hold, arrived := make(chan struct{}), make(chan struct{}, 10_000)
	c, _, _ := server(t, func(int64) string {
		arrived <- struct{}{}
		<-hold
		return good
	})
	load := traffic.Load{
		Profile: traffic.Profile{Name: "one", Ledger: 1, Regions: []int{100}},
		Rate:    200, History: traffic.NewHistory(), Targets: []traffic.Target{{Region: "a", Regiond: c, Bare: c}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		load.Run(ctx)
	}()
	for range 20 { // while none is answered
		<-arrived
	}
	close(hold)
	cancel()
	<-done
	records := load.History.Records()
	if len(records) < 20 {
		t.Fatalf("%d requests are recorded", len(records))
	}
	for i := range records {
		if r := &records[i]; r.Call < r.Due || r.Return < r.Call || r.Took() < r.Return-r.Call {
			t.Fatalf("due at %v, sent at %v, answered at %v", r.Due, r.Call, r.Return)
		}
	}
}
