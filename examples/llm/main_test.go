package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestScenario: the program shows what README.md says: answers that are settled below what was held, in both regions; the quota
// that they share, used up; and streams at once.
func TestScenario(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"eu-west  200  181 chunks; held 520, used 200: 320 are free again; x-ratelimit-remaining-tokens was 1480",
		"us-east  200  181 chunks; held 520, used 200: 320 are free again",
		"429  limit tokens, Retry-After: ",
		"eu-west  200  with max_tokens 20", "us-east  200  with max_tokens 20",
		"4 passed, 2 were refused by limit inflight",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	// 2000 tokens are eight answers of 200 and what a ninth may use at most, whichever region is asked.
	if n := strings.Count(out.String(), "181 chunks"); n < 8 || n > 9 {
		t.Errorf("%d answers, want 8, or 9 where the regions did not know of each other's last:\n%s", n, &out)
	}
}

// TestGatewaySettlesWhatWasStreamed: a customer who goes away in the middle is charged the prompt and the chunks until then.
func TestGatewaySettlesWhatWasStreamed(t *testing.T) {
	settled := make(chan string, 1)
	regiond := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		if r.URL.Path == "/v1/settle" {
			settled <- body.String()
		}
		_, _ = w.Write([]byte(`{"allowed":true,"reservation":{"id":"r","amount":520,"expires_in_ms":30000}}`))
	}))
	defer regiond.Close()
	chunk := make(chan struct{})
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			_, _ = w.Write([]byte("data: {\"choices\":[]}\n\n"))
		}
		w.(http.Flusher).Flush()
		close(chunk)
		<-r.Context().Done()
	}))
	defer model.Close()
	g := httptest.NewServer(&gateway{regiond: regiond.URL, model: model.URL, settled: func(int64, int64, settlement) {}})
	defer g.Close()
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL, strings.NewReader(`{"messages":[{"role":"user","content":"12345678"}],"max_tokens":500}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer acme")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	<-chunk
	got := make([]byte, 66) // three chunks
	for n := 0; n < len(got); {
		more, err := resp.Body.Read(got[n:])
		if n += more; err != nil {
			t.Fatal(err)
		}
	}
	leave()
	resp.Body.Close()
	if got := <-settled; got != `{"actual":5,"reservation":"r"}` {
		t.Errorf("settled with %s, want 2 of the prompt and 3 chunks", got)
	}
}
