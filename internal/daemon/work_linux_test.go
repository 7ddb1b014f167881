package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regiond/regiond/httpapi"
)

// repeated is text of most bytes at most: head, as many pieces as fit, tail.
func repeated(most int, head, piece, tail string) string {
	return head + strings.Repeat(piece, (most-len(head)-len(tail))/len(piece)) + tail
}

// batchOf is a batch of a hundred checks that fill a body.
func batchOf(check func(room int) string) string {
	checks := make([]string, httpapi.MaxChecks)
	for i := range checks {
		checks[i] = check(httpapi.MaxBody/httpapi.MaxChecks - 2)
	}
	return `{"checks":[` + strings.Join(checks, ",") + `]}`
}

// sixteen are dimensions that are wrong in the most expensive way.
func sixteen(name, value string) string {
	dims := make([]string, httpapi.MaxDimensions)
	for i := range dims {
		dims[i] = fmt.Sprintf(`"%s%d":"%s"`, name, i, value)
	}
	return strings.Join(dims, ",")
}

// request makes a request of "Name: value" header lines, from a trusted proxy.
func request(method, target, body string, header ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// worstRequests are requests that break rules, as large as they may be.
func worstRequests() map[string]*http.Request {
	const body, head = httpapi.MaxBody - 64, httpapi.MaxHeaderBytes - 1024
	control := strings.Repeat(`\u0001`, 64)
	numbered := func(format string) (lines []string) {
		for size, i := 0, 0; size < head; i++ {
			lines = append(lines, fmt.Sprintf(format, i))
			size += len(lines[i]) + len("\r\n")
		}
		return lines
	}
	rows := map[string]*http.Request{}
	for name, text := range map[string]string{
		"empty names":        repeated(body, `{`, `"":1,`, `"":1}`),
		"short names":        repeated(body, `{"tenant":"a"`, `,"~/":[]`, `}`),
		"duplicates":         repeated(body, `{"tenant":"a"`, `,"tenant":1`, `}`),
		"long names":         repeated(body, `{`, `"`+control+`":1,`, `"":1}`),
		"one name":           repeated(body, `{"`, `\u0001`, `":1}`),
		"dimensions":         repeated(body, `{"tenant":"a","dimensions":{`, `"":1,`, `"":1}}`),
		"long dimensions":    `{"tenant":"a","dimensions":{` + sixteen(control, control) + `}}`,
		"huge dimensions":    `{"tenant":"a","dimensions":{` + sixteen(strings.Repeat("é", 800), strings.Repeat(" ", 800)) + `}}`,
		"unknown dimensions": `{"tenant":"a","dimensions":{` + sixteen("x", "y") + `}}`,
		"nested":             repeated(body, `{"x":`, `[`, ``),
		"an array":           repeated(body, `{"x":[`, `1,`, `1]}`),
		"objects":            repeated(body, `{"x":[`, `{"":{}},`, `1]}`),
		"digits":             repeated(body, `{"tenant":"a","cost":`, `9`, `}`),
		"tenant":             repeated(body, `{"tenant":"`, `\u0001`, `"}`),
		"two values":         repeated(body, `{"tenant":"a"}`, `{}`, ``),
		"not UTF-8":          repeated(body, `{"tenant":"`, "\xff", `"}`),
	} {
		rows["check, "+name] = request("POST", "/v1/check", text)
		rows["batch, "+name] = request("POST", "/v1/check:batch", repeated(httpapi.MaxBody, `{"checks":[`, text+",", text+"]}"))
	}
	for name, text := range map[string]string{
		"numbers":            repeated(body, `{"checks":[`, `1,`, `1]}`),
		"empty checks":       repeated(body, `{"checks":[`, `{},`, `{}]}`),
		"unknown members":    repeated(body, `{`, `"":1,`, `"checks":[{"tenant":"a"}]}`),
		"a wrong value each": batchOf(func(room int) string { return repeated(room, `{"tenant":"a","cost":0,"x":"`, `y`, `"}`) }),
		"a wrong id each":    batchOf(func(room int) string { return repeated(room, `{"tenant":"`, `\u0001`, `"}`) }),
		"unknown policies":   batchOf(func(int) string { return `{"tenant":"a","policy":"gold"}` }),
		"unknown dimensions": batchOf(func(int) string { return `{"tenant":"a","dimensions":{` + sixteen("x", "y") + `}}` }),
		"wrong dimensions":   batchOf(func(int) string { return `{"tenant":"a","dimensions":{` + sixteen("X", `\u0001`) + `}}` }),
		"high costs":         batchOf(func(int) string { return `{"tenant":"a","cost":1099511627776}` }),
	} {
		rows["batch, "+name] = request("POST", "/v1/check:batch", text)
	}
	for name, query := range map[string]string{
		"parameters": repeated(head, "", "a&", "a"),
		"escapes":    repeated(head, "a", "%01", ""),
		"dimensions": strings.ReplaceAll(repeated(head, "", "dim."+strings.Repeat("%7e", 160)+"=%01&", "cost=0"), "&", "1&"),
		"values":     repeated(head, "dim.x=", "%01", "&policy=Q&cost=x"),
		"broken":     repeated(head, "a=", "%zz", ""),
	} {
		rows["query of usage, "+name] = request("GET", "/v1/usage/a?"+query, "")
		rows["query of check, "+name] = request("POST", "/v1/check?"+query, `{"tenant":"a"}`)
	}
	rows["path of usage"] = request("GET", "/v1/usage/"+repeated(head, "", "%01", ""), "")
	for name, lines := range map[string][]string{
		"names":        numbered("X_%d: 1"),
		"aliases":      numbered("X_Tenan%d: 1"),
		"tenants":      slices.Repeat([]string{"X-Tenant: a"}, head/13),
		"tenant":       {"X-Tenant: " + strings.Repeat("\x7f", head)},
		"keys":         slices.Repeat([]string{"Idempotency-Key: a"}, head/20),
		"key":          {"Idempotency-Key: " + strings.Repeat("\x7f", head)},
		"media type":   {"Content-Type: " + repeated(head, "a/b", ";a=b", "")},
		"parameters":   {"Content-Type: application/json" + strings.Join(numbered(";a%d=b"), "")},
		"hops":         {"X-Tenant: a,", "X-Forwarded-For: " + repeated(head, "", "192.0.2.1,", "192.0.2.1")},
		"traces":       {"X-Tenant: a,", "Traceparent: " + "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate: " + repeated(head, "", "a=b,", "a=b")},
		"many tracers": slices.Repeat([]string{"Traceparent: " + "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, head/70),
	} {
		rows["headers of check, "+name] = request("POST", "/v1/check", `{"tenant":"a b"}`, lines...)
		rows["headers of forward-auth, "+name] = request("GET", "/v1/authz/x", "", lines...)
		original := append(slices.Clone(lines), "X-Original-Method: GET", "X-Original-Uri: /x")
		rows["headers of nginx, "+name] = request("GET", "/v1/authz-nginx", "", original...)
	}
	for name, path := range map[string]string{
		"separators": repeated(head, "/", "%2f", ""),
		"dots":       repeated(head, "/", "../", ""),
		"all":        repeated(head, "/", `a%2f..%5c;%2e%2E/`, ""),
		"broken":     repeated(head, "/", "%zz", ""),
		"escapes":    repeated(head, "/", "%61", "%00"),
	} {
		rows["path of nginx, "+name] = request("GET", "/v1/authz-nginx", "", "X-Original-Method: POST", "X-Original-Uri: "+path)
		if name != "broken" { // net/http refuses it itself
			rows["path of forward-auth, "+name] = request("POST", "/v1/authz"+path, "")
		}
	}
	return rows
}

// threadTime is the processor time of the calling thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// medianTime is the median of the processor time that some runs take, without what
// prepare takes before each of them.
func medianTime(t *testing.T, prepare, run func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took := make([]time.Duration, 15)
	for i := range took {
		prepare()
		from := threadTime(t)
		run()
		took[i] = threadTime(t) - from
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// TestBadRequestsAreCheap: a request that breaks rules takes at most a millisecond of
// processor time and 8 KiB of answer, in whatever way it breaks them. Where a validator
// that does nothing else needs more than half a millisecond for 64 KiB of JSON, because
// of the race detector or a slow machine, the bound is twice its time.
func TestBadRequestsAreCheap(t *testing.T) {
	const mostTime, mostBytes = time.Millisecond, 8 << 10
	h := start(t, inMemory()).daemon.data.(*httpapi.PlainServer).Handler
	sample := []byte(repeated(httpapi.MaxBody, `{`, `"":1,`, `"":1}`))
	valid := medianTime(t, func() {}, func() {
		if !json.Valid(sample) {
			t.Error("the sample is not JSON")
		}
	})
	most := max(mostTime, 2*valid)
	for name, r := range worstRequests() {
		all, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		var w *httptest.ResponseRecorder
		took := medianTime(t, func() {
			w = httptest.NewRecorder()
			r.Body = io.NopCloser(strings.NewReader(string(all)))
		}, func() { h.ServeHTTP(w, r) })
		if took > most || w.Body.Len() > mostBytes {
			t.Errorf("%s: %v and %d bytes of answer, want at most %v and %d: %d %.100s", name, took, w.Body.Len(), most, mostBytes, w.Code, w.Body)
		}
	}
}
