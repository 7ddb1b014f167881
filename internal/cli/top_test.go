package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/regiond/regiond/quota"
)

// ranking answers GET /v1/top as regiond does, by the query that it is asked.
func ranking(q map[string][]string) quota.TopReport {
	v := quota.TopReport{
		WindowMS: 60_000, CoversMS: 83_400, Region: "eu-west", Regions: []string{"eu-west"}, Processes: 1, Total: 1000, OthersAtMost: 3,
		Rows: []quota.TopRow{
			{Tenant: "acme", Policy: "standard", Limit: "burst", Partition: "::", AtLeast: 700, AtMost: 702},
			{Tenant: "globex", Policy: "standard", Limit: "per-user", Partition: "user,ip:2.42,9.192.0.2.1:", AtLeast: 120, AtMost: 190},
			{Tenant: "", Policy: "standard", Limit: "login", Partition: "ip:-:route=5.login", AtLeast: 50, AtMost: 200},
			{Tenant: "evil\x1b[2J", Policy: "strict", Limit: "burst", Partition: "user:#12ab", AtLeast: 1, AtMost: 1},
			{Tenant: strings.Repeat("long-", 12), Policy: "strict", Limit: "burst", Partition: "::", AtLeast: 1, AtMost: 1},
		},
	}
	_ = v.By.UnmarshalText([]byte(q["by"][0]))
	if q["scope"][0] == "global" {
		v.Scope, v.Regions, v.Absent, v.Processes = quota.ScopeGlobal, []string{"eu-west", "us-east"}, []string{"ap-south"}, 4
		v.Notes = []string{"A note."}
	}
	return v
}

func rankingServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/v1/top" || q.Get("window") == "" || q.Get("limit") == "" {
			t.Errorf("it requests %s", r.URL)
		}
		if q.Get("policy") == "none" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"title":"The request breaks a rule","detail":"Nothing was charged; see errors for each mistake.","errors":[{"pointer":"#/policy","detail":"\"none\" is not a policy"}]}`)
			return
		}
		_ = json.NewEncoder(w).Encode(ranking(q))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestTopPlain(t *testing.T) {
	s := rankingServer(t)
	session := session{replace: []string{s.URL, "URL"}}
	for _, args := range [][]string{
		{},
		{"--by", "used", "--scope", "global", "--window", "1h"},
		{"-o", "json", "--limit", "3"},
		{"--policy", "none"},
	} {
		session.run(t, append([]string{"top", "--addr", s.URL}, args...)...)
	}
	session.compare(t, "top")
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	t.Cleanup(page.Close)
	if got := invoke(t, "top", "--addr", page.URL); got.code != 2 || !strings.Contains(got.stderr, "is not regiond's admin listener") {
		t.Errorf("of a page: %+v", got)
	}
}

func TestPartitionText(t *testing.T) {
	for partition, want := range map[string]string{
		"::": "-", "#::": "-", "user:2.42:": "user=42", "#user:2.42:": "user=42", "user,ip:2.42,9.192.0.2.1:": "user=42 ip=192.0.2.1", "user:-:": "user=(none)",
		"::route=5.login": "route=login", "::a=1.x,b=3.y,z": "a=x b=y,z", "user:3.a:b:": "user=a:b",
		"user:#12ab": "user:#12ab", "": "", ":": ":", "user:9.short:": "user:9.short:", "user:x": "user:x", "::a=": "::a=", "a,b:1.x:": "a,b:1.x:",
	} {
		if got := partitionText(partition); got != want {
			t.Errorf("%q: %q, want %q", partition, got, want)
		}
	}
	// As they are written.
	l := &quota.Limit{By: []string{"ip", "user"}, When: []quota.Match{{Dimension: "route", Value: "a,b=1.c"}, {Dimension: "x", Value: "-"}}}
	partition := string(quota.AppendPartition(nil, l, quota.Dimensions{{Name: "user", Value: "1.2,3:"}}))
	if got := partitionText(partition); got != "ip=(none) user=1.2,3: route=a,b=1.c x=-" {
		t.Errorf("%q: %q", partition, got)
	}
}

// TestTopWatch: it prints again until an interrupt, and goes on asking one that is away.
func TestTopWatch(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"title":"Not now","detail":"It starts."}`)
			return
		case 3:
			defer interrupt()
		}
		_ = json.NewEncoder(w).Encode(ranking(r.URL.Query()))
	}))
	defer s.Close()
	got := invokeIn(ctx, "top", "--addr", s.URL, "--watch", "--every", "100ms", "-o", "json")
	if got.code != 0 || got.stderr != "regiond top: Not now: It starts.\n" || strings.Count(got.stdout, "\"total\":1000}\n") < 1 || asked.Load() < 3 {
		t.Errorf("asked %d times: %+v", asked.Load(), got)
	}
}
