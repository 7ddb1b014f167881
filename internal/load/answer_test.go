package load

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"testing"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// fixed is a server with one answer, and the requests that it received.
func fixed(t *testing.T, code int, body string) (target string, asked *[]string) {
	t.Helper()
	asked = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // what is missing shows below
		*asked = append(*asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization")+" "+string(text))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// send sends a check as a run does, and returns what it counts.
func send(t *testing.T, target string) answer {
	t.Helper()
	u, err := url.Parse(target + "/v1/check")
	if err != nil {
		t.Fatal(err)
	}
	a := &attack{
		Options: Options{Prefix: "bench-", Policy: "gold", Costs: Costs{3, 3}, Token: "secret"},
		urls:    []*url.URL{u}, tenants: newZipf(1, 1), random: rand.New(rand.NewPCG(1, 1)),
	}
	var check vegeta.Target
	if err := a.target(&check); err != nil {
		t.Fatal(err)
	}
	r, err := check.Request()
	if err != nil {
		t.Fatal(err)
	}
	next := &http.Transport{}
	defer next.CloseIdleConnections()
	return ask(next, r)
}

// TestAsk lists what a server answers, and what that counts as.
func TestAsk(t *testing.T) {
	const exact = `"basis":"exact","mode":"global"`
	decided := Answer{Allowed: true, Basis: "exact", Mode: "global"}
	observed, denied := decided, Answer{Basis: "exact", Mode: "global", Title: "Too many"}
	observed.WouldDeny = true
	for _, row := range []struct {
		code int
		body string
		want answer
	}{
		{200, `{"allowed":true,` + exact + `}`, answer{Answer: decided}},
		{200, `{"allowed":true,"would_deny":true,` + exact + `}`, answer{Answer: observed}},
		{429, `{"allowed":false,"title":"Too many",` + exact + `}`, answer{Answer: denied}},
		{503, `{"allowed":false,"basis":"closed","mode":"local","reason":"redis_down"}`, answer{Answer: Answer{Basis: "closed", Mode: "local", Reason: "redis_down"}}},
		{503, `{"title":"Capacity is reduced for now","detail":"Retry later."}`, failed("status 503", "Capacity is reduced for now: Retry later.")},
		{503, `{}`, failed(faultForeign, `status 503, "{}"`)},
		{400, `{"title":"Bad","detail":"Look.","errors":[{"pointer":"#/cost","detail":"is 0"}]}`, failed("status 400", "Bad: Look.; #/cost is 0")},
		{302, ``, failed("status 302", "")},
		{200, `<html>`, failed(faultForeign, `status 200, "<html>"`)},
		{200, `{"allowed":true}`, failed(faultForeign, `status 200, "{\"allowed\":true}"`)},
	} {
		target, asked := fixed(t, row.code, row.body)
		if got := send(t, target); !reflect.DeepEqual(got, row.want) {
			t.Errorf("%d %s: %+v", row.code, row.body, got)
		}
		if want := `POST /v1/check Bearer secret {"tenant":"bench-1","policy":"gold","cost":3}`; len(*asked) != 1 || (*asked)[0] != want {
			t.Errorf("it asks %q, want once %q", *asked, want)
		}
	}
}

// TestFaults: what becomes of a request whose connection does not last.
func TestFaults(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1)) // a request, and no answer
			_ = conn.Close()
		}
	}()
	if a := send(t, address); a.fault != faultBroken {
		t.Errorf("a connection that ends: %+v", a)
	}
	_ = l.Close()
	if a := send(t, address); a.fault != faultRefused {
		t.Errorf("nothing listens: %+v", a)
	}
	if a := send(t, "http://host.invalid"); a.fault != faultNetwork {
		t.Errorf("no such host: %+v", a)
	}
}
