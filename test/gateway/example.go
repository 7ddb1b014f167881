//go:build unix

package gateway

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"
)

// Example is one folder of examples/, whose tests run in that folder.
type Example struct {
	// Launch starts the gateway on the folder's files, in front of a regiond and an
	// app at these addresses, with the edits made. It returns where customers
	// connect, and the process, nil for a modelled gateway.
	Launch func(t *testing.T, regiond, app string, edits ...Edit) (addr string, p *Process)
	// Authenticate adds a customer's credentials; APIKey when nil.
	Authenticate func(req *http.Request, tenant string)
	// LongTimeouts replaces the example's timeouts by ten seconds, which a busy
	// machine does not exceed.
	LongTimeouts []Edit
	// Opposite turns failing open into failing closed, or closed into open; empty
	// when the gateway cannot.
	Opposite []Edit
	// NoTenant makes the gateway call regiond without a tenant.
	NoTenant []Edit
	// Closed is set when the file as shipped fails closed.
	Closed bool
	// DownStatus is the customer's status while regiond is down, when failing closed.
	DownStatus int
	// Timeout is how long the gateway waits for regiond; 0 when no line of the file
	// sets it.
	Timeout time.Duration
	// NoRateLimit is set when the gateway does not pass the RateLimit fields of an
	// admission on to the customer.
	NoRateLimit bool
	// NoChallenge is set when the gateway's own 401 has no WWW-Authenticate.
	NoChallenge bool
	// OwnPage is set when the refusal while regiond is down is the gateway's page,
	// not a problem document.
	OwnPage bool

	// Statuses has what the customer gets for each status of regiond.
	Statuses map[int]int
	// Check is what a gateway that is not modelled sends regiond for a login of acme with forged
	// fields: all of it, or, when MoreFields is set, what it has at least, without the fields Absent.
	Check      *Received
	MoreFields bool
	Absent     []string
	// Shed is the status by which regiond sheds a check of such a gateway.
	Shed int
	// ReadsDecision is set when the gateway reads X-Regiond-Decision.
	ReadsDecision bool
}

// stack is the example as an operator runs it, each part on a free port.
type stack struct {
	Customer
	app     *Server
	regiond *Regiond
}

// start runs the whole example with the shipped files, but for their addresses
// and the edits of the gateway's file.
func (e Example) start(t *testing.T, binary string, edits ...Edit) *stack {
	t.Helper()
	s := &stack{app: NewApp(t), regiond: StartRegiond(t, binary, "topology.yaml")}
	s.Customer, _ = e.InFrontOf(t, s.regiond.Addr, s.app.Addr, edits...)
	return s
}

// InFrontOf starts the gateway in front of a running regiond and app.
func (e Example) InFrontOf(t *testing.T, regiond, app string, edits ...Edit) (Customer, *Process) {
	t.Helper()
	authenticate := e.Authenticate
	if authenticate == nil {
		authenticate = APIKey
	}
	addr, p := e.Launch(t, regiond, app, edits...)
	return Customer{Addr: addr, Authenticate: authenticate}, p
}

// Run runs the scenarios, each with a stack of its own. It fails when the programs
// are missing, and is left out under -short.
func (e Example) Run(t *testing.T) {
	if testing.Short() {
		t.Skip("starts redis-server, regiond and a gateway")
	}
	binary := Build(t, "../..")
	for _, scenario := range []struct {
		name string
		test func(t *testing.T, binary string)
	}{
		{"allowed requests pass with what is left", e.allowed},
		{"limited requests get 429", e.limited},
		{"logins have a tighter limit", e.routes},
		{"no spelling escapes a limit", e.spellings},
		{"nor does another case of the method", e.methods},
		{"forged headers change nothing", e.forged},
		{"no size lets a request pass", e.sizes},
		{"without credentials nothing is served", e.unauthenticated},
		{"without a tenant regiond forbids", e.noTenant},
		{"regiond is killed and restarted", e.killed},
		{"regiond is frozen", e.frozen},
		{"one line changes the fail mode", e.opposite},
	} {
		t.Run(scenario.name, func(t *testing.T) { scenario.test(t, binary) })
	}
	t.Run("each status of regiond", e.statuses)
	if e.Check != nil {
		t.Run("regiond gets what the gateway knows", e.check)
		t.Run("what is not counted has no fields", e.uncounted)
		t.Run("the field Connection removes nothing", e.connectionField)
	}
	if e.ReadsDecision {
		t.Run("another server in place of regiond", e.otherServer)
	}
}

// statuses checks what the customer gets for each status of a server in
// regiond's place, and that 200 alone reaches the app.
func (e Example) statuses(t *testing.T) {
	for regiond, customer := range e.Statuses {
		header := http.Header{"X-Regiond-Decision": {"allow"}}
		if regiond != http.StatusOK {
			header = nil
		}
		app := NewApp(t)
		c, _ := e.InFrontOf(t, NewServer(t, regiond, header, "").Addr, app.Addr, e.LongTimeouts...)
		got := c.Send(t, Request{As: "acme"})
		if got.Status != customer {
			t.Errorf("regiond %d: the customer gets %d, want %d", regiond, got.Status, customer)
		}
		if reached := len(app.Requests()) == 1; reached != (customer == http.StatusOK) {
			t.Errorf("regiond %d: the request reached the app: %v", regiond, reached)
		}
	}
}

// otherServer checks, of a gateway that reads X-Regiond-Decision, that the 200
// of another server on regiond's port lets nothing through.
func (e Example) otherServer(t *testing.T) {
	app := NewApp(t)
	c, _ := e.InFrontOf(t, NewServer(t, http.StatusOK, nil, "welcome").Addr, app.Addr, e.LongTimeouts...)
	c.Send(t, Request{As: "acme"}).Is(t, http.StatusInternalServerError)
	if len(app.Requests()) != 0 {
		t.Error("the request reached the app")
	}
}

// uncounted checks that a customer gets no RateLimit fields where regiond sends none:
// on a route that is skipped, and when a check is shed.
func (e Example) uncounted(t *testing.T) {
	skips := NewServer(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, "")
	sheds := NewServer(t, e.Shed, http.Header{
		"X-Regiond-Decision": {"deny"}, "Retry-After": {"1"}, "Content-Type": {"application/problem+json"},
	}, `{"type":"x","title":"y","status":429,"detail":"z"}`+"\n")
	for regiond, status := range map[*Server]int{skips: http.StatusOK, sheds: http.StatusTooManyRequests} {
		c, _ := e.InFrontOf(t, regiond.Addr, NewApp(t).Addr, e.LongTimeouts...)
		got := c.Send(t, Request{As: "acme"})
		got.Is(t, status)
		got.Lacks(t, "RateLimit", "RateLimit-Policy")
		if retry := got.Header.Get("Retry-After"); (retry == "1") != (regiond == sheds) || retry != "1" && retry != "" {
			t.Errorf("Retry-After of %d is %q", status, retry)
		}
	}
}

// connectionField checks that a customer cannot remove its identity by naming the
// field in Connection, which proxies do not pass on.
func (e Example) connectionField(t *testing.T) {
	regiond, app := NewServer(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, ""), NewApp(t)
	c, _ := e.InFrontOf(t, regiond.Addr, app.Addr, e.LongTimeouts...)
	for _, names := range []string{"X-Tenant", "x-tenant, x-forwarded-for, x-forwarded-method, x-forwarded-uri, x-original-uri"} {
		c.Send(t, Request{As: "acme", From: "127.0.0.2", Header: http.Header{"Connection": {names}, "X-Tenant": {"globex"}}}).Is(t, http.StatusOK)
	}
	for _, r := range append(regiond.Requests(), app.Requests()...) {
		if tenant, from := r.Header.Values("X-Tenant"), r.Header.Values("X-Forwarded-For"); !slices.Equal(tenant, []string{"acme"}) || !slices.Equal(from, []string{"127.0.0.2"}) {
			t.Errorf("%s %s arrived with X-Tenant %q and X-Forwarded-For %q, want acme and 127.0.0.2", r.Method, r.URI, tenant, from)
		}
	}
	if n := len(regiond.Requests()) + len(app.Requests()); n != 4 {
		t.Errorf("%d requests arrived, want 4", n)
	}
}

// check checks the request that regiond gets for a login of acme with forged fields.
func (e Example) check(t *testing.T) {
	want := e.Check
	regiond := NewServer(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, "")
	c, _ := e.InFrontOf(t, regiond.Addr, NewApp(t).Addr, e.LongTimeouts...)
	header := forgery()
	header["X-Tenant"] = []string{"globex", "hobby"}
	maps.Copy(header, http.Header{
		"X-Forwarded-For": {"198.51.100.1"}, "Authorization": {"Bearer b"}, "Cookie": {"c=d"}, "X-Anything": {"e"},
	})
	c.Send(t, Request{
		Method: http.MethodPost, Path: "/login?next=%2Fhome", As: "acme", From: "127.0.0.2", Header: header, Body: "user=u&password=p",
	}).Is(t, http.StatusOK)
	got := regiond.Requests()[0]
	if got.Method != want.Method || got.URI != want.URI || got.Body != "" || want.Host != "" && got.Host != want.Host {
		t.Errorf("regiond got %s %s at host %s with body %q, want %s %s at %s without one",
			got.Method, got.URI, got.Host, got.Body, want.Method, want.URI, want.Host)
	}
	if !e.MoreFields && !maps.EqualFunc(got.Header, want.Header, slices.Equal) {
		t.Errorf("regiond got the fields\n%v, want\n%v", got.Header, want.Header)
	}
	for field, values := range want.Header {
		if !slices.Equal(got.Header[field], values) {
			t.Errorf("regiond got %s: %q, want %q", field, got.Header[field], values)
		}
	}
	for _, field := range e.Absent {
		if values, ok := got.Header[field]; ok {
			t.Errorf("regiond got %s: %q, want none", field, values)
		}
	}
}
