//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// kind is a kind of check: its policy, and what else stands in it.
type kind struct{ policy, more string }

var (
	user    = `,"dimensions":{"user":"u"}`
	wide    = kind{"wide", user}
	hour    = kind{"hour", user}
	second  = kind{"second", user}
	narrow  = kind{"narrow", user}
	global  = kind{"global", user}
	two     = kind{"two", user}
	tokens  = kind{"tokens", ""}
	windows = kind{"windows", user}
	split   = kind{"split", user}
	logs    = kind{"logs", `,"dimensions":{"user":"u","ip":"10.0.0.1","key":"k"}`}
	logs2   = kind{"logs", `,"cost":2` + logs.more}
	readme2 = kind{"readme", `,"cost":2,"dimensions":{"user":"u","ip":"10.0.0.1","route":"login"}`}
)

const (
	checkPath = "/v1/check"
	unsettled = 5 // of so many reservations one has no settle
)

// bodies are those of requests for that many tenants, each of them for several: a check, or
// a batch.
func bodies(prefix string, k kind, tenants, each int) (all []string) {
	for first := 0; first < tenants; first += each {
		checks := make([]string, each)
		for i := range checks {
			checks[i] = fmt.Sprintf(`{"tenant":"%s%07d","policy":%q%s}`, prefix, first+i, k.policy, k.more)
		}
		body := checks[0]
		if each > 1 {
			body = `{"checks":[` + strings.Join(checks, ",") + `]}`
		}
		all = append(all, body)
	}
	return all
}

// requests are the same as they go over the wire to a path.
func requests(path, prefix string, k kind, tenants, each int) (all [][]byte) {
	for _, body := range bodies(prefix, k, tenants, each) {
		all = append(all, post(path, body))
	}
	return all
}

// reserves are requests that hold an amount for a time each.
func reserves(prefix string, tenants int, amount, ttlMS int64) [][]byte {
	return requests("/v1/reserve", prefix, kind{tokens.policy, fmt.Sprintf(`,"amount":%d,"ttl_ms":%d`, amount, ttlMS)}, tenants, 1)
}

// settles writes the settle of the reservation of an answer, if that has one; one in five is never settled.
func settles() func(request, answer []byte) []byte {
	var count atomic.Int64
	return func(request, answer []byte) []byte {
		_, id, reserved := bytes.Cut(answer, []byte(`"reservation":{"id":"`))
		if !reserved || count.Add(1)%unsettled == 0 {
			return nil
		}
		id, _, _ = bytes.Cut(id, []byte(`"`))
		body := fmt.Sprintf(`{"reservation":"%s","actual":7}`, id)
		return append(request, post("/v1/settle", body)...)
	}
}

func post(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body)
}

// checks are requests for that many tenants, one each.
func checks(prefix string, k kind, tenants int) [][]byte {
	return requests(checkPath, prefix, k, tenants, 1)
}

// batches are requests for that many tenants, each of them for several.
func batches(prefix string, k kind, tenants, each int) [][]byte {
	return requests(pathOf(each), prefix, k, tenants, each)
}

// pathOf is where requests for several go.
func pathOf(each int) string {
	if each > 1 {
		return "/v1/check:batch"
	}
	return checkPath
}

// ask sends one request.
func ask(addr, path, body string) (*http.Response, []byte, error) {
	res, err := http.Post("http://"+addr+path, "application/json", strings.NewReader(body)) //nolint:noctx // loopback
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res, text, err
}
