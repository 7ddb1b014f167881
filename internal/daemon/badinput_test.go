package daemon

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/test/redisserver"
)

// raw sends bytes as they are, which http.Client would refuse to, and reads one
// answer.
func (c client) raw(t *testing.T, request string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// A server that has read enough may answer and close before all is written.
	_, writeErr := io.WriteString(conn, request)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer to %.100q: %v (%v)", request, err, writeErr)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("half an answer to %.100q: %v", request, err)
	}
	return answer{status: res.StatusCode, header: res.Header, body: string(body)}
}

// post is a POST as it stands on the wire.
func post(path, body string, fields ...string) string {
	return message("POST "+path, fields, body)
}

func message(line string, fields []string, body string) string {
	fields = append([]string{line + " HTTP/1.1", "Host: regiond", "Connection: close"}, fields...)
	return strings.Join(fields, "\r\n") + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// badInput is a ledger: what is sent, what it gets, and what the answer names.
type badInput struct {
	what   string
	send   string
	status int
	names  []string
}

func badBodies() []badInput {
	var rows []badInput
	for _, c := range []struct {
		what, body string
		status     int
		names      []string
	}{
		{"an unknown field", `{"tenant":"acme","tennant":"x"}`, 400, []string{"#/tennant"}},
		{"a repeated field", `{"tenant":"acme","tenant":"acme"}`, 400, []string{"#/tenant", "duplicated"}},
		{"a tenant that is a number", `{"tenant":7}`, 400, []string{"#/tenant", "string"}},
		{"a tenant that is null", `{"tenant":null}`, 400, []string{"#/tenant"}},
		{"no tenant", `{"cost":1}`, 400, []string{"#/tenant", "required"}},
		{"an empty tenant", `{"tenant":""}`, 400, []string{"#/tenant"}},
		{"dimensions that are a list", `{"tenant":"acme","dimensions":["ip"]}`, 400, []string{"#/dimensions"}},
		{"a dimension that is a number", `{"tenant":"acme","dimensions":{"ip":7}}`, 400, []string{"#/dimensions/ip", "string"}},
		{"a repeated dimension", `{"tenant":"acme","dimensions":{"ip":"a","ip":"b"}}`, 400, []string{"#/dimensions/ip", "duplicated"}},
		{"cost 0", `{"tenant":"acme","cost":0}`, 400, []string{"#/cost"}},
		{"a negative cost", `{"tenant":"acme","cost":-1}`, 400, []string{"#/cost"}},
		{"a fractional cost", `{"tenant":"acme","cost":1.5}`, 400, []string{"#/cost"}},
		{"a whole fraction", `{"tenant":"acme","cost":1.0}`, 400, []string{"#/cost"}},
		{"a cost with an exponent", `{"tenant":"acme","cost":1e3}`, 400, []string{"#/cost", "1e3"}},
		{"a huge cost", `{"tenant":"acme","cost":1099511627777}`, 400, []string{"#/cost"}},
		{"a cost beyond 64 bits", `{"tenant":"acme","cost":99999999999999999999999999}`, 400, []string{"#/cost"}},
		{"a cost that is text", `{"tenant":"acme","cost":"1"}`, 400, []string{"#/cost"}},
		{"a cost above the limit", `{"tenant":"acme","cost":6}`, 422, []string{"#/cost", "5", "cost-exceeds-limit"}},
		{"a control character", `{"tenant":"ac\u0001me"}`, 400, []string{"#/tenant"}},
		{"NUL", `{"tenant":"acme\u0000"}`, 400, []string{"#/tenant"}},
		{"a raw NUL", "{\"tenant\":\"acme\x00\"}", 400, []string{"errors"}},
		{"a space", `{"tenant":"ac me"}`, 400, []string{"#/tenant"}},
		{"an opening brace", `{"tenant":"{acme"}`, 400, []string{"#/tenant"}},
		{"a closing brace", `{"tenant":"acme}"}`, 400, []string{"#/tenant"}},
		{"an id that is not ASCII", `{"tenant":"äcme"}`, 400, []string{"#/tenant"}},
		{"bytes that are not UTF-8", "{\"tenant\":\"acm\xff\"}", 400, []string{"UTF-8"}},
		{"an id of 257 bytes", `{"tenant":"` + strings.Repeat("a", 257) + `"}`, 400, []string{"#/tenant", "256"}},
		{"an id of 1 MB", `{"tenant":"` + strings.Repeat("a", 1<<20) + `"}`, 413, []string{"65536"}},
		{"a body over 64 KiB", strings.Repeat(" ", 64<<10) + `{"tenant":"acme"}`, 413, []string{"65536"}},
		{"a value of a dimension with a space", `{"tenant":"acme","dimensions":{"ip":"a b"}}`, 400, []string{"#/dimensions/ip"}},
		{"a value of a dimension of 257 bytes", `{"tenant":"acme","dimensions":{"ip":"` + strings.Repeat("a", 257) + `"}}`, 400, []string{"#/dimensions/ip"}},
		{"an unknown policy", `{"tenant":"acme","policy":"gold"}`, 400, []string{"#/policy", "gold"}},
		{"a policy that is no name", `{"tenant":"acme","policy":"Gold!"}`, 400, []string{"#/policy"}},
		{"an unknown dimension", `{"tenant":"acme","dimensions":{"usr":"42"}}`, 400, []string{"#/dimensions/usr"}},
		{"several mistakes, all named", `{"tenant":"a b","cost":0,"tier":1}`, 400, []string{"#/tenant", "#/cost", "#/tier"}},
		{"nothing", ``, 400, []string{"errors"}},
		{"no JSON", `tenant=acme`, 400, []string{"errors"}},
		{"half an object", `{"tenant":"acme"`, 400, []string{"errors"}},
		{"two objects", `{"tenant":"acme"}{"tenant":"acme"}`, 400, []string{"errors"}},
		{"a list", `[{"tenant":"acme"}]`, 400, []string{"object"}},
		{"deep nesting", `{"tenant":` + strings.Repeat("[", 30000) + strings.Repeat("]", 30000) + `}`, 400, []string{"errors"}},
	} {
		rows = append(rows, badInput{"check: " + c.what, post("/v1/check", c.body), c.status, c.names})
		if c.what != "a cost above the limit" { // what was spent was spent
			rows = append(rows, badInput{"report: " + c.what, post("/v1/report", c.body), c.status, c.names})
		}
	}
	return rows
}

func badCalls() []badInput {
	checks := func(n int) string {
		return `{"checks":[` + strings.TrimSuffix(strings.Repeat(`{"tenant":"acme"},`, n), ",") + `]}`
	}
	const good = `{"tenant":"acme"}`
	return []badInput{
		{"a batch of 101", post("/v1/check:batch", checks(101)), 400, []string{"100"}},
		{"a batch of none", post("/v1/check:batch", checks(0)), 400, []string{"#/checks"}},
		{"a batch that is a check", post("/v1/check:batch", good), 400, []string{"#/tenant"}},
		{"a batch with Idempotency-Key", post("/v1/check:batch", checks(1), "Idempotency-Key: k"), 400, []string{"Idempotency-Key"}},
		{"an Idempotency-Key of 65", post("/v1/check", good, "Idempotency-Key: "+strings.Repeat("k", 65)), 400, []string{"Idempotency-Key", "64"}},
		{"an Idempotency-Key with a space", post("/v1/check", good, "Idempotency-Key: a b"), 400, []string{"Idempotency-Key"}},
		{"two Idempotency-Keys", post("/v1/check", good, "Idempotency-Key: a", "Idempotency-Key: b"), 400, []string{"Idempotency-Key"}},
		{"an unknown parameter", post("/v1/check?cost=0", good), 400, []string{"cost"}},
		{"a repeated parameter", post("/v1/check?explain=1&explain=1", good), 400, []string{"explain"}},
		{"a body that is not JSON by its own word", post("/v1/check", good, "Content-Type: text/html"), 415, nil},
		{"a body in another encoding", post("/v1/check", good, "Content-Encoding: gzip"), 415, nil},
		{"another method", message("GET /v1/check", nil, ""), 405, []string{"POST"}},
		{"a call that is none", post("/v1/chek", good), 404, nil},
		{"a path with dots", post("/v1/../v1/check", good), 404, nil},
		{"usage with cost 0", message("GET /v1/usage/acme?cost=0", nil, ""), 400, []string{"cost"}},
		{"usage of a bad id", message("GET /v1/usage/a%20b", nil, ""), 400, []string{"tenant"}},
		{"usage of a braced id", message("GET /v1/usage/%7Bacme%7D", nil, ""), 400, []string{"tenant"}},
		{"usage with an unknown parameter", message("GET /v1/usage/acme?plicy=standard", nil, ""), 400, []string{"plicy"}},
		{"usage with an unknown dimension", message("GET /v1/usage/acme?dim.usr=1", nil, ""), 400, []string{"usr"}},
	}
}

func badForwardAuth() []badInput {
	const identity = "problem:identity"
	get := func(path string, fields ...string) string { return message("GET "+path, fields, "") }
	return []badInput{
		{"no tenant", get("/v1/authz/x"), 403, []string{identity, "X-Tenant"}},
		{"an empty tenant", get("/v1/authz/x", "X-Tenant: "), 403, []string{identity, "X-Tenant"}},
		{"two tenants", get("/v1/authz/x", "X-Tenant: acme", "X-Tenant: acme"), 403, []string{identity, "X-Tenant"}},
		{"two tenants in one line", get("/v1/authz/x", "X-Tenant: acme, globex"), 403, []string{identity, "X-Tenant"}},
		{"an alias of the tenant's header", get("/v1/authz/x", "X-Tenant: acme", "X_Tenant: globex"), 403, []string{identity, "X-Tenant"}},
		{"a tenant with a space", get("/v1/authz/x", "X-Tenant: ac me"), 403, []string{identity, "X-Tenant"}},
		{"a tenant with a brace", get("/v1/authz/x", "X-Tenant: {acme}"), 403, []string{identity, "X-Tenant"}},
		{"a tenant that is not ASCII", get("/v1/authz/x", "X-Tenant: \xc3\xa4cme"), 403, []string{identity, "X-Tenant"}},
		{"a tenant of 257 bytes", get("/v1/authz/x", "X-Tenant: "+strings.Repeat("a", 257)), 403, []string{identity, "X-Tenant"}},
		{"no tenant for nginx", get("/v1/authz-nginx", "X-Original-Method: GET", "X-Original-URI: /"), 403, []string{identity}},
		{"no original method", get("/v1/authz-nginx", "X-Tenant: acme", "X-Original-URI: /"), 403, []string{"X-Original-Method"}},
		{"no original path", get("/v1/authz", "X-Tenant: acme", "X-Forwarded-Method: GET"), 403, []string{"X-Forwarded-Uri"}},
		{"two original paths", get("/v1/authz", "X-Tenant: acme", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /status", "X-Forwarded-Uri: /login"), 403, []string{"X-Forwarded-Uri"}},
		{"a broken escape in the path", get("/v1/authz", "X-Tenant: acme", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /%zz"), 403, []string{"percent-escape"}},
	}
}

// TestBadInput: each row gets a problem document that names what is wrong, and
// after all of them nothing has been charged, to anybody.
func TestBadInput(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	p := start(t, onRedis(srv.Addr()))
	rows := append(append(badBodies(), badCalls()...), badForwardAuth()...)
	for _, row := range rows {
		a := p.raw(t, row.send)
		if a.status != row.status {
			t.Errorf("%s: status %d, want %d\n%s", row.what, a.status, row.status, a.body)
			continue
		}
		a.problem(t)
		for _, name := range row.names {
			if !strings.Contains(a.body, name) {
				t.Errorf("%s: the answer does not name %q:\n%s", row.what, name, a.body)
			}
		}
	}
	// What is not HTTP does not reach the program, and is no trouble either.
	for _, c := range []struct {
		send   string
		status int
	}{
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400},
		{message("GET /v1/usage/acme\x00", nil, ""), 400},
		{message("GET /v1/authz/x", []string{"X-Tenant: ac\x00me"}, ""), 400},
		{message("GET /v1/authz/x", []string{"X-Tenant: " + strings.Repeat("a", 32<<10)}, ""), 431},
	} {
		if a := p.raw(t, c.send); a.status != c.status {
			t.Errorf("%.40q: status %d, want %d", c.send, a.status, c.status)
		}
	}
	charged, err := srv.Client().Keys(t.Context(), "rl:{*").Result()
	if err != nil || len(charged) > 0 {
		t.Errorf("after %d bad requests Redis has %q (%v)", len(rows), charged, err)
	}
	if left := p.left(t, "acme"); left != 5 {
		t.Errorf("%d of 5 remain after nothing but bad requests", left)
	}
	for series, n := range p.metrics(t).series {
		if strings.HasPrefix(series, "regiond_http_panics_total") && n > 0 || strings.Contains(series, `status="500"`) && n > 0 {
			t.Errorf("%s is %v", series, n)
		}
	}
}

// TestForgedForwardedFor: only what the trusted proxy wrote last is believed, so
// inventing addresses in front of it gains no further logins.
func TestForgedForwardedFor(t *testing.T) {
	p := start(t, inMemory())
	for i, c := range []struct {
		forwarded string
		status    int
	}{
		{"198.51.100.7", 200},
		{"203.0.113.1, 198.51.100.7", 200},
		{"203.0.113.2, 198.51.100.7", 429},
		{"127.0.0.1, 198.51.100.7", 429},
		{"rubbish, 198.51.100.7", 429},
		{"203.0.113.3, 198.51.100.8", 200}, // truly another address
	} {
		if a := p.raw(t, post("/v1/authz/login", "", "X-Tenant: acme", "X-Forwarded-For: "+c.forwarded)); a.status != c.status {
			t.Errorf("%d: X-Forwarded-For %q: %d, want %d", i, c.forwarded, a.status, c.status)
		}
	}
}

// TestGarbageInRedis harms the partition that it is in, and no other.
func TestGarbageInRedis(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	p := start(t, onRedis(srv.Addr()))
	for _, tenant := range []string{"typed", "garbled", "sound"} {
		p.check(t, tenant).is(t, http.StatusOK)
	}
	key := func(tenant string) string {
		keys, err := srv.Client().Keys(t.Context(), "rl:{"+tenant+"}:*").Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("keys of %s: %q, %v", tenant, keys, err)
		}
		return keys[0]
	}
	if err := srv.Client().Del(t.Context(), key("typed")).Err(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Client().Set(t.Context(), "rl:{typed}:l:"+strings.SplitN(key("sound"), ":l:", 2)[1], "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Client().RPush(t.Context(), key("garbled"), "not a stamp").Err(); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"typed", "garbled"} {
		a := p.check(t, tenant)
		a.is(t, http.StatusOK)
		if d := a.decision(t); d.rests() != "local/local" || d.Reason != "redis_refused" {
			t.Errorf("%s: the answer rests on %s, reason %q", tenant, d.rests(), d.Reason)
		}
	}
	a := p.check(t, "sound")
	a.is(t, http.StatusOK)
	if d := a.decision(t); d.rests() != "exact/global" || d.Remaining != 3 {
		t.Errorf("beside garbage, a sound tenant gets %+v", d)
	}
	if n := p.metrics(t).series["regiond_partition_faults_total"]; n != 2 {
		t.Errorf("regiond_partition_faults_total is %v, want 2", n)
	}
}
