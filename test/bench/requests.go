//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
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
	windows = kind{"windows", user}
	split   = kind{"split", user}
)

const checkPath = "/v1/check"

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
