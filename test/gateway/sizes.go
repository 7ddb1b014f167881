//go:build unix

package gateway

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// sizes are requests with targets and header fields of 1 KiB to 1 MiB.
func sizes(n int) (requests []struct{ target, fields string }) {
	long := func(n int) string { return strings.Repeat("a", n) }
	for i := range n {
		size := 1 << 10 << rand.IntN(11) //nolint:gosec // sizes of a test
		size = min(1<<20, size+rand.IntN(size))
		r := struct{ target, fields string }{target: "/status"}
		switch i % 5 {
		case 0:
			r.fields = "X-Big: " + long(size) + "\r\n"
		case 1:
			r.fields = strings.Repeat("X-Many: "+long(990)+"\r\n", 1+size/1000)
		case 2:
			r.fields = strings.Repeat("Cookie: c="+long(4000)+"\r\n", 1+size/4000)
		case 3:
			r.target = "/status?" + long(size)
		case 4:
			r.target = "/" + strings.Repeat("%C3%A9", size/6)
		}
		requests = append(requests, r)
	}
	return requests
}

// sizes sends requests of all sizes as a tenant that has nothing left: none reaches the app.
func (e Example) sizes(t *testing.T, binary string) {
	app := NewApp(t)
	// No quota comes back while the test runs.
	regiond := StartRegiond(t, binary, "topology.yaml", Edit{Old: "{name: sustained, units: 10, per: 1m}", New: "{name: sustained, units: 10, per: 1h}"})
	c, _ := e.InFrontOf(t, regiond.Addr, app.Addr, e.LongTimeouts...)
	c.Exhaust(t, Request{As: "hobby"}, 10)
	credentials, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Authenticate(credentials, "hobby")
	var authenticated strings.Builder
	_ = credentials.Header.Write(&authenticated) // never fails
	statuses := map[string]int{}
	for _, r := range sizes(150) {
		status := c.sendRaw(t, "GET "+r.target+" HTTP/1.1\r\nHost: api\r\nConnection: close\r\n"+authenticated.String()+r.fields+"\r\n")
		statuses[status]++
	}
	if n := len(app.Requests()); n != 10 {
		t.Errorf("%d of 150 requests reached the app: %v", n-10, statuses)
	}
	if statuses["429"] == 0 {
		t.Errorf("no request was small enough to be denied by regiond: %v", statuses)
	}
	t.Log(statuses)
}

// sendRaw sends a request byte for byte, and returns the status of the answer; "" where the gateway cuts it.
func (c Customer) sendRaw(t *testing.T, request string) (status string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", c.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(conn, request) // the gateway need not read all of it
	answer, _ := io.ReadAll(conn)
	_, _ = fmt.Sscanf(string(answer), "HTTP/1.1 %s", &status)
	return status
}
