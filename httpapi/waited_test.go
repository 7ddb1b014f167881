//go:build linux

package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

// TestLateRequestsAreTurnedAway: time counts from when the last byte of a request arrived, also before its connection was
// accepted, and what is still not read once the deadline has passed is answered without being read.
func TestLateRequestsAreTurnedAway(t *testing.T) { onBoth(t, testLateRequestsAreTurnedAway) }

func testLateRequestsAreTurnedAway(t *testing.T, on engine) {
	f := &fake{}
	o := options(f)
	o.Deadline, o.Settings = 500*time.Millisecond, func() *httpapi.Settings { return &httpapi.Settings{ForwardAuth: forwardAuth()} }
	h := handler(t, o)
	l, bound := bounded(t, 100)
	const forwarded = "X-Tenant: a\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /x\r\nX-Original-Method: GET\r\nX-Original-Uri: /x\r\n"
	const body = `{"tenant":"a"}`
	rows := []struct {
		request string
		late    int
	}{
		{"GET /v1/authz HTTP/1.1\r\nHost: h\r\n" + forwarded + "\r\n", 429},
		{"GET /v1/authz/x HTTP/1.1\r\nHost: h\r\n" + forwarded + "\r\n", 429},
		{"GET /v1/authz-nginx HTTP/1.1\r\nHost: h\r\n" + forwarded + "\r\n", 403},
		{"POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body, 503},
	}
	clients := make([]*visitor, len(rows))
	for i, row := range rows {
		clients[i] = dial(t, l)
		if _, err := clients[i].Write([]byte(row.request)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(600 * time.Millisecond) // is what the requests wait, not what the test does

	start(t, on(h, bound), l)
	for i, row := range rows {
		res, err := http.ReadResponse(clients[i].in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != row.late || res.Header.Get("Retry-After") != "1" {
			t.Errorf("%.30q late: %s, Retry-After %q; want %d", row.request, res.Status, res.Header.Get("Retry-After"), row.late)
		}
		wantShed(t, reply{status: res.StatusCode, header: res.Header, body: string(body)})
		if n := f.calls(); n != i { // the one in time of each row before
			t.Errorf("%d were decided, want %d", n, i)
		}
		if _, err := clients[i].Write([]byte(row.request)); err != nil {
			t.Fatal(err)
		}
		if res, err = http.ReadResponse(clients[i].in, nil); err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusOK {
			t.Errorf("%.30q in time: %s", row.request, res.Status)
		}
	}
	if n := f.turnedAway(); n != len(rows) {
		t.Errorf("%d were counted as shed, want %d", n, len(rows))
	}
}

// TestLateBehindAnother: a request that was sent at once with another waits for as long as that takes.
func TestLateBehindAnother(t *testing.T) { onBoth(t, testLateBehindAnother) }

func testLateBehindAnother(t *testing.T, on engine) {
	f := &fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
		time.Sleep(600 * time.Millisecond) // is what the second request waits
		return allowed(r), nil
	}}
	o := options(f)
	o.Deadline = 500 * time.Millisecond
	l, bound := bounded(t, 100)
	start(t, on(handler(t, o), bound), l)
	client := dial(t, l)
	const request = "POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n" + `{"tenant":"a"}`
	if _, err := client.Write([]byte(request + request)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 503} {
		res, err := http.ReadResponse(client.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.Body.Close(); res.StatusCode != want {
			t.Errorf("request %d: %s, want %d", i, res.Status, want)
		}
	}
}
